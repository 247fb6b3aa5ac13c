from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from everfill.infra.stack.client import open_stack
from everfill.infra.stack.paths import StackPaths
from everfill.infra.stack.room import find_want_of_room
from everfill.kernel.config import Settings
from everfill.kernel.errors import EverfillError, InvalidError, UnavailableError


class Usage(NamedTuple):
    free: int


@pytest.fixture
def free_bytes(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """What the disk has left, for the test to set."""
    given = {"free": 0}
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(given["free"]))
    return given


def test_a_disk_without_room_for_a_piece_of_the_log_is_told_by_name(
    free_bytes: dict[str, int], tmp_path: Path
) -> None:
    free_bytes["free"] = 2**24 - 1
    full = find_want_of_room(tmp_path)
    assert full
    assert full.code == "disk_full"
    assert full.message == f"The disk of the data directory {tmp_path} is full: 16.8 MB are left."
    assert full.hint
    assert "run the same command again" in full.hint

    free_bytes["free"] = 2**24
    assert find_want_of_room(tmp_path) is None


@pytest.mark.parametrize(
    ("fault", "free", "told"),
    [
        (UnavailableError("postgres_unavailable", "It does not answer."), 0, "disk_full"),
        (OSError(28, "No space left on device"), 0, "disk_full"),
        (InvalidError("name_invalid", "No."), 0, "name_invalid"),
        (UnavailableError("postgres_unavailable", "No answer."), 10**9, "postgres_unavailable"),
    ],
)
async def test_only_what_a_full_disk_may_have_caused_is_told_as_one(
    free_bytes: dict[str, int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fault: Exception,
    free: int,
    told: str,
) -> None:
    free_bytes["free"] = free

    def fail(_: StackPaths) -> None:
        raise fault

    monkeypatch.setattr(StackPaths, "create", fail)
    with pytest.raises(EverfillError) as failed:
        async with open_stack(Settings(data_dir=tmp_path)):
            pass
    assert failed.value.code == told
