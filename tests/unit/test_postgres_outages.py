from __future__ import annotations

import psycopg
import pytest

from everfill.infra.postgres import persist
from everfill.kernel.errors import UnavailableError


async def test_a_full_disk_is_told_at_once_and_as_such() -> None:
    calls = 0

    async def call() -> None:
        nonlocal calls
        calls += 1
        raise psycopg.errors.DiskFull("could not extend file: No space left on device")

    with pytest.raises(UnavailableError, match="No space left on device") as caught:
        await persist(call)
    assert caught.value.code == "disk_full"
    assert calls == 1
