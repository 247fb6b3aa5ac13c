"""A disk that fills up in mid-run is named, leaves nothing running, and a rerun finishes."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from fill_harness import COLUMNS, Fill, check, in_database, kill

from everfill.cli.exit_codes import ExitCode

DISK_BYTES = 300_000_000
PATIENCE_SECONDS = 150
POSTGRES_LOG_PIECE_BYTES = 16 * 1024**2


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small disk of its own."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = shutil.which("mount")
    if mount is None:
        pytest.skip("there is no mount here")
    made = subprocess.run(
        [mount, "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "none", str(place)],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode:
        pytest.skip(f"mounting is not permitted: {made.stderr.strip()}")
    yield place
    for process in processes_on(place):
        kill(process.pid)
    umount = shutil.which("umount")
    assert umount
    subprocess.run([umount, "--lazy", str(place)], check=True)


def processes_on(place: Path) -> list[psutil.Process]:
    """Processes that were started for what lies there, or work inside it."""
    found: list[psutil.Process] = []
    for process in psutil.process_iter():
        try:
            words = [*process.cmdline(), process.cwd()]
        except psutil.Error:
            continue
        if process.status() != psutil.STATUS_ZOMBIE and any(str(place) in word for word in words):
            found.append(process)
    return found


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it did not come to be"
        time.sleep(0.02)


def fill_up(disk: Path, *, leave_bytes: int = 0) -> Path:
    """Leave no room on the disk, or hardly any."""
    ballast = disk / "ballast"
    # an error says that no room is left: so it should be
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while shutil.disk_usage(disk).free > leave_bytes:
            file.write(b"x" * 65_536)
    assert shutil.disk_usage(disk).free < POSTGRES_LOG_PIECE_BYTES
    return ballast


def end_of(fill: Fill) -> int:
    assert fill.process
    return fill.process.wait(PATIENCE_SECONDS)


def filling(tmp_path: Path, disk: Path, *, rows: int) -> Fill:
    """A fill in mid-run, with its data on the disk."""
    fill = Fill(tmp_path, rows=rows, data_dir=disk / "data")
    fill.start()
    until(lambda: fill.computed() > 500)
    return fill


@pytest.mark.chaos
def test_a_full_disk_is_named_and_a_rerun_finishes_once_there_is_room(
    tmp_path: Path, disk: Path
) -> None:
    fill = filling(tmp_path, disk, rows=4_000)
    ballast = fill_up(disk)
    assert end_of(fill) == ExitCode.UNAVAILABLE
    assert f"The disk of the data directory {fill.data_dir} is full" in fill.told()
    assert "Free some space there and run the same command again" in fill.told()

    ballast.unlink()
    fill.start()
    assert end_of(fill) == ExitCode.DONE, fill.told()
    check(fill, faults=1)


@pytest.mark.chaos
@pytest.mark.slow
@pytest.mark.parametrize("leave_bytes", [1_000_000, POSTGRES_LOG_PIECE_BYTES - 1])
def test_a_disk_with_hardly_any_room_is_named_too(
    tmp_path: Path, disk: Path, leave_bytes: int
) -> None:
    fill = filling(tmp_path, disk, rows=12_000)
    ballast = fill_up(disk, leave_bytes=leave_bytes)
    assert end_of(fill) == ExitCode.UNAVAILABLE
    assert f"The disk of the data directory {fill.data_dir} is full" in fill.told()

    ballast.unlink()
    fill.start()
    assert end_of(fill) == ExitCode.DONE, fill.told()
    check(fill, faults=1)


@pytest.mark.chaos
@pytest.mark.slow
def test_a_command_killed_on_a_full_disk_leaves_nothing_running_and_does_not_start_in_vain(
    tmp_path: Path, disk: Path
) -> None:
    fill = filling(tmp_path, disk, rows=12_000)
    ballast = fill_up(disk)
    assert fill.process
    kill(fill.process.pid)
    fill.process.wait()
    until(lambda: not processes_on(disk))

    fill.start()
    assert end_of(fill) == ExitCode.UNAVAILABLE
    assert f"The disk of the data directory {fill.data_dir} is full" in fill.told()
    until(lambda: not processes_on(disk))

    ballast.unlink()
    fill.start()
    assert end_of(fill) == ExitCode.DONE, fill.told()
    check(fill, faults=2)
    assert asyncio.run(in_database(fill)) == [(0, 0, COLUMNS * fill.rows)]
