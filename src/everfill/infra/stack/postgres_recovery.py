"""What a killed Postgres leaves behind, and how to clear it without harm to a living one.

Postgres believes its pid file whenever some process has that pid. After a reboot, or in a restarted
container, that may be anybody, and the server refuses to start for ever. Here the pid is believed
only if the process is a Postgres that serves this very directory.
"""

from __future__ import annotations

import asyncio
import signal
from itertools import pairwise
from pathlib import Path
from typing import Final

import psutil
import structlog

__all__ = ["clear_former_life", "find_postmaster", "is_postmaster_of", "leftover_backends"]

_log = structlog.get_logger(__name__)

_SERVER_STEPS: Final = ((signal.SIGINT, 15.0), (signal.SIGQUIT, 5.0), (signal.SIGKILL, 5.0))
_BACKEND_STEPS: Final = ((signal.SIGQUIT, 3.0), (signal.SIGKILL, 5.0))
_POLL_SECONDS: Final = 0.02


async def clear_former_life(data_dir: Path, socket_dir: Path, port: int) -> None:
    """End what still serves the directory, then remove its pid file and sockets.

    Only for the elected supervisor: nobody else may be starting this server meanwhile.
    """
    if (data_dir / "postmaster.pid").exists():
        postmaster = find_postmaster(data_dir)
        if postmaster is not None:
            _log.warning("postgres_former_server_ending", pid=postmaster.pid)
            await _end([postmaster], _SERVER_STEPS)
        backends = leftover_backends(data_dir)
        if backends:
            _log.warning("postgres_leftover_backends_ending", count=len(backends))
            await _end(backends, _BACKEND_STEPS)
        (data_dir / "postmaster.pid").unlink(missing_ok=True)
    for name in (f".s.PGSQL.{port}", f".s.PGSQL.{port}.lock"):
        (socket_dir / name).unlink(missing_ok=True)


def find_postmaster(data_dir: Path) -> psutil.Process | None:
    """The living server that the directory's pid file names, or None where it names no such."""
    try:
        first = (data_dir / "postmaster.pid").read_text("utf-8", "replace").splitlines()[0]
        process = psutil.Process(int(first))
        arguments, status = process.cmdline(), process.status()
    except (OSError, ValueError, IndexError, psutil.Error):
        return None
    is_alive = status != psutil.STATUS_ZOMBIE
    return process if is_alive and is_postmaster_of(arguments, data_dir) else None


def is_postmaster_of(arguments: list[str], data_dir: Path) -> bool:
    """Whether a process with these arguments is a Postgres server for the directory."""
    if not arguments or Path(arguments[0]).name not in {"postgres", "postgres.exe"}:
        return False
    return any(flag == "-D" and Path(value) == data_dir for flag, value in pairwise(arguments))


def leftover_backends(data_dir: Path) -> list[psutil.Process]:
    """Processes of a dead server that still work in its directory: they bar the next start."""
    found: list[psutil.Process] = []
    for process in psutil.process_iter(["name"]):
        try:
            if process.info["name"] == "postgres" and process.cwd() == str(data_dir):
                found.append(process)
        except psutil.Error:  # ended meanwhile, or another user's: not ours
            continue
    return found


async def _end(
    processes: list[psutil.Process], steps: tuple[tuple[signal.Signals, float], ...]
) -> None:
    """Signal with growing insistence until all are gone."""
    for sign, patience_seconds in steps:
        for process in processes:
            if _is_alive(process):
                process.send_signal(sign)
        deadline = asyncio.get_running_loop().time() + patience_seconds
        while asyncio.get_running_loop().time() < deadline:
            if not any(map(_is_alive, processes)):
                return
            await asyncio.sleep(_POLL_SECONDS)


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
