"""An event loop whose time is a number, and processes that can be killed, frozen and thawed in it.

Nothing sleeps: when nobody is ready, time jumps to the next timer. Who is ready at one moment runs
in an order that the seed decides. There are no threads and no sockets.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random
from collections.abc import Coroutine
from contextvars import ContextVar, copy_context
from typing import Any

PROCESS: ContextVar[Process | None] = ContextVar("process", default=None)


class Process:
    """What dies as one: everything that runs in the context of one simulated process."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.dead = False
        self.frozen = False
        self.parked: list[asyncio.Handle] = []
        self.task: asyncio.Task[None] | None = None

    @property
    def runs(self) -> bool:
        return not (self.dead or self.frozen)


class SimTask(asyncio.Task[Any]):
    """A task whose hash is a number in order of creation, so that sets of tasks keep one order."""

    _numbers = itertools.count()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._number = next(self._numbers)
        super().__init__(*args, **kwargs)

    def __hash__(self) -> int:
        return self._number


class SimLoop(asyncio.BaseEventLoop):
    """The loop of one simulation.

    Args:
        chance: Decides the order of what is ready.
    """

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self._chance = chance
        self._seconds = 0.0
        self.server_context = copy_context()
        self.buried = False
        SimTask._numbers = itertools.count()
        self.set_task_factory(lambda loop, coro, **options: SimTask(coro, loop=loop, **options))
        self.set_exception_handler(lambda _loop, _context: None)

    def time(self) -> float:
        return self._seconds

    def spawn(self, name: str, work: Coroutine[Any, Any, None]) -> Process:
        """Start a process."""
        process = Process(name)
        context = copy_context()
        context.run(PROCESS.set, process)
        process.task = self.create_task(work, context=context)
        return process

    def thaw(self, process: Process) -> None:
        """Let a frozen process go on, with everything that happened to it meanwhile."""
        process.frozen = False
        if not process.dead:
            self._ready.extend(process.parked)
            process.parked.clear()

    def bury(self, processes: list[Process]) -> None:
        """Unwind what is left of processes once nobody looks, so that no coroutine leaks."""
        self.buried = True
        for process in processes:
            process.dead = process.frozen = False
            self._ready.extend(process.parked)
            process.parked.clear()
        for _ in range(100):
            left = asyncio.all_tasks(self)
            if not left:
                return
            for task in sorted(left, key=hash):
                task.cancel()
            self.run_until_complete(asyncio.wait(left, timeout=1.0))
        raise AssertionError(f"tasks that refuse to end: {asyncio.all_tasks(self)}")

    def _run_once(self) -> None:
        self._wake_timers()
        batch = list(self._ready)
        self._ready.clear()
        assert batch, "everybody waits for something that never comes"
        self._chance.shuffle(batch)
        for handle in batch:
            if not handle._cancelled:
                process = handle._context.get(PROCESS)
                if process is None or process.runs:
                    handle._run()
                else:
                    process.parked.append(handle)

    def _wake_timers(self) -> None:
        timers = self._scheduled
        while timers and timers[0]._cancelled:
            heapq.heappop(timers)._scheduled = False
        if timers and not self._ready:
            self._seconds = max(self._seconds, timers[0]._when)
        while timers and timers[0]._when <= self._seconds:
            timer = heapq.heappop(timers)
            timer._scheduled = False
            self._ready.append(timer)

    def _process_events(self, event_list: object) -> None:
        """There is nothing outside that could have events."""

    def _write_to_self(self) -> None:
        """There is no selector to wake."""
