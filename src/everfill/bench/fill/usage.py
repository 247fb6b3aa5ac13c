"""Processor time and memory of many processes that come and go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

import psutil

__all__ = ["UsageMeter", "own_bytes", "resident_bytes"]

_LOOK_SECONDS: Final = 0.25


class UsageMeter:
    """Looks at processes over and over; one that ended keeps what it had used when last seen.

    Args:
        find: The process ids that count now; their children count with them.
    """

    def __init__(self, find: Callable[[], Iterable[int]]) -> None:
        self._find = find
        self._used: dict[tuple[int, float], float] = {}
        self._before: dict[tuple[int, float], float] = {}
        self.peak_bytes = 0

    @property
    def cpu_seconds(self) -> float:
        """Since `begin`."""
        return sum(used - self._before.get(key, 0.0) for key, used in self._used.items())

    def begin(self) -> None:
        """Count from here."""
        self.look()
        self._before = dict(self._used)
        self.peak_bytes = 0

    async def watch(self) -> None:
        """Look until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(_LOOK_SECONDS)

    def look(self) -> None:
        """Look once."""
        resident = 0
        for process in self._processes():
            with suppress(psutil.Error), process.oneshot():
                times = process.cpu_times()
                self._used[process.pid, process.create_time()] = times.user + times.system
                resident += resident_bytes(process)
        self.peak_bytes = max(self.peak_bytes, resident)

    def _processes(self) -> set[psutil.Process]:
        found: set[psutil.Process] = set()
        for pid in self._find():
            with suppress(psutil.Error):
                process = psutil.Process(pid)
                found |= {process, *process.children(recursive=True)}
        return found


def resident_bytes(process: psutil.Process) -> int:
    """Resident memory; pages that processes share are divided among them, where that is known."""
    info = process.memory_full_info()
    return int(getattr(info, "pss", info.rss))


def own_bytes(process: psutil.Process) -> int:
    """Resident memory that no other process shares, where that is known."""
    info = process.memory_full_info()
    return int(getattr(info, "uss", info.rss))
