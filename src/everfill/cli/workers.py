"""The worker processes that `fill`, `up` and `reprocess --wait` start beside themselves.

A worker ends when its standard input closes, so it cannot outlive whoever started it, whatever
kills that. One that dies is started again. Their logs go to files.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

from everfill.infra.stack.room import find_want_of_room
from everfill.kernel.config import Settings
from everfill.kernel.errors import UnavailableError

__all__ = ["start_workers"]

_RESTART_SECONDS: Final = 1.0
_EARLY_SECONDS: Final = 15.0
_EARLY_DEATHS_MAX: Final = 3
"""A worker that ends by itself this often, this early, never will start."""
_STOP_SECONDS: Final = 10.0
_DISK_SECONDS: Final = 1.0
_LOG_BYTES_MAX: Final = 5_000_000


@asynccontextmanager
async def start_workers(
    settings: Settings, *, cell_workers: int, drain_seconds: float
) -> AsyncGenerator[asyncio.Event, None]:
    """Cell workers and one setup worker, from when they are needed until the context ends.

    Args:
        settings: Whose data directory they join.
        cell_workers: How many.
        drain_seconds: How long a worker may finish its calls when it is stopped.

    Yields:
        To be set once they are needed.

    Raises:
        UnavailableError: `worker_failed`; `disk_full`, where embedded servers have no room left.
    """
    names = [f"cell-worker-{n}" for n in range(1, cell_workers + 1)] + ["setup-worker"]
    slots = str(settings.worker.slots)
    needed = asyncio.Event()
    try:
        async with asyncio.TaskGroup() as group:
            keepers = [
                group.create_task(
                    _keep(name, _command(settings, name, slots, drain_seconds), settings, needed)
                )
                for name in names
            ]
            if settings.postgres.url is None:
                keepers.append(group.create_task(_mind_disk(settings)))
            try:
                yield needed
            finally:
                for keeper in keepers:
                    keeper.cancel()
    except* UnavailableError as group_error:
        raise group_error.exceptions[0] from None


def _command(settings: Settings, name: str, slots: str, drain_seconds: float) -> list[str]:
    verb = "setup-worker" if name == "setup-worker" else "cell-worker"
    own = ["--slots", slots, "--drain-seconds", str(drain_seconds)] if verb == "cell-worker" else []
    common = ["--data-dir", str(settings.data_dir), "--while-stdin-open"]
    return [sys.executable, "-m", "everfill", verb, *common, *own]


async def _keep(name: str, command: list[str], settings: Settings, needed: asyncio.Event) -> None:
    """Run a worker once it is needed, and again when it dies, until cancelled."""
    await needed.wait()
    log = settings.data_dir / "logs" / f"{name}.log"
    loop = asyncio.get_running_loop()
    early_deaths = 0
    while early_deaths < _EARLY_DEATHS_MAX:
        started = loop.time()
        process = await _start(command, log)
        try:
            code = await process.wait()
        except asyncio.CancelledError:
            await _stop(process)
            raise
        by_itself = code > 0 and loop.time() - started < _EARLY_SECONDS
        early_deaths = early_deaths + 1 if by_itself else 0
        await asyncio.sleep(_RESTART_SECONDS)
    raise UnavailableError(
        "worker_failed",
        f"The {name} does not start: it ended by itself {early_deaths} times in a row.",
        hint=f"Its log says why: {log}.",
    )


async def _mind_disk(settings: Settings) -> None:
    """Raise once the disk is full and stays so: workers would try in vain, and tell only a log."""
    while True:
        await asyncio.sleep(_DISK_SECONDS)
        if find_want_of_room(settings.data_dir):
            await asyncio.sleep(_DISK_SECONDS)
            if full := find_want_of_room(settings.data_dir):
                raise full


def _open_log(log: Path) -> BinaryIO:
    log.parent.mkdir(parents=True, exist_ok=True)
    if log.exists() and log.stat().st_size > _LOG_BYTES_MAX:
        log.replace(log.with_suffix(".old.log"))
    return log.open("ab")


async def _start(command: list[str], log: Path) -> Process:
    with _open_log(log) as file:
        return await asyncio.create_subprocess_exec(
            *command, stdin=PIPE, stdout=DEVNULL, stderr=file, start_new_session=True
        )


async def _stop(process: Process) -> None:
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGTERM)
    try:
        await asyncio.wait_for(process.wait(), _STOP_SECONDS)
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
