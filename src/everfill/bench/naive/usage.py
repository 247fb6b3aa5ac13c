"""What a trial costs: processor time, memory and disk, of the worker and of the server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import psutil

__all__ = ["ServerPlace", "Usage", "find_server", "watch_usage"]

_SAMPLE_SECONDS: Final = 0.1
_Number = TypeVar("_Number", int, float)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerPlace:
    """Where a server on this machine can be watched; either may be unknown."""

    pid: int | None
    database_file: Path | None


@dataclass(slots=True, kw_only=True)
class Usage:
    """What was used while it was watched; complete once the watch is over."""

    worker_cpu_seconds: float = 0.0
    worker_memory_bytes: int = 0
    server_cpu_seconds: float | None = None
    server_memory_bytes: int | None = None
    database_bytes: int | None = None


def find_server(temporal_address: str) -> int | None:
    """The process that listens at an address; None where none of this user's does."""
    port = int(temporal_address.rpartition(":")[2])
    for process in psutil.process_iter():
        try:
            listening = process.net_connections(kind="tcp")
        except psutil.Error:
            continue
        if any(it.status == psutil.CONN_LISTEN and it.laddr.port == port for it in listening):
            return process.pid
    return None


@asynccontextmanager
async def watch_usage(server: ServerPlace) -> AsyncGenerator[Usage]:
    """Watch this process and the server while the context is open."""
    usage, worker = Usage(), psutil.Process()
    process = psutil.Process(server.pid) if server.pid is not None else None
    worker_before, server_before = _cpu_seconds(worker), _find_cpu_seconds(process)
    database_before = _find_bytes(server.database_file)
    sampling = asyncio.create_task(_sample(usage, worker, process))
    try:
        yield usage
    finally:
        sampling.cancel()
        usage.worker_cpu_seconds = _cpu_seconds(worker) - worker_before
        usage.server_cpu_seconds = _difference(_find_cpu_seconds(process), server_before)
        usage.database_bytes = _difference(_find_bytes(server.database_file), database_before)


async def _sample(usage: Usage, worker: psutil.Process, server: psutil.Process | None) -> None:
    while True:
        usage.worker_memory_bytes = max(usage.worker_memory_bytes, worker.memory_info().rss)
        if server is not None and server.is_running():
            most = usage.server_memory_bytes or 0
            usage.server_memory_bytes = max(most, server.memory_info().rss)
        await asyncio.sleep(_SAMPLE_SECONDS)


def _cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def _find_cpu_seconds(process: psutil.Process | None) -> float | None:
    """None where the process is not known or has ended."""
    return _cpu_seconds(process) if process is not None and process.is_running() else None


def _find_bytes(file: Path | None) -> int | None:
    """A SQLite database with what is written ahead of it."""
    if file is None:
        return None
    files = (file, file.with_name(f"{file.name}-wal"))
    return sum(part.stat().st_size for part in files if part.exists())


def _difference(after: _Number | None, before: _Number | None) -> _Number | None:
    return after - before if after is not None and before is not None else None
