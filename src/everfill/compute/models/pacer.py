"""Turns to call a model: one pace for all processes, over a board that they share.

The board is best effort. Where it does not answer, every process keeps its own pace, and what the
provider refuses teaches each of them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import msgspec

from everfill.compute.models.pacing import (
    FAILURES_MAX,
    RATE_MAX,
    Pace,
    Turns,
    accepted,
    failed,
    recovered,
    rejected,
    reserve,
)
from everfill.compute.protocol import Board
from everfill.kernel.clock import Clock, SystemClock

__all__ = ["Pacer", "Turn"]

_AHEAD_SECONDS: Final = 0.1
"""Turns are taken for so long at once: a fast model costs the board ten questions a second."""
_SLACK_SECONDS: Final = 0.002
"""A turn may come so much early: fast calls are not worth a timer each."""
_ASK_AGAIN_SECONDS: Final = 1.0
"""While nobody may call: another process may have found that the model answers again."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn that has come.

    Attributes:
        key: Of which model.
        at: When it came.
    """

    key: str
    at: float


@dataclass(slots=True)
class _Lane:
    """What one process keeps of one model."""

    pace: Pace = field(default_factory=Pace)
    turns: deque[float] = field(default_factory=deque[float])
    reserved_at: float = 0.0
    used: int = 0
    """Turns, since they were reserved."""
    waiting: int = 0
    answered: int = 0
    """Not told yet."""
    front: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by whoever is next, so that a board has one asker a process."""


class Pacer:
    """The paces of one event loop.

    Args:
        board: What processes share, its clock among it; None: nothing.
        clock: Until the board has told its time.
    """

    def __init__(self, board: Board | None = None, clock: Clock | None = None) -> None:
        self._board = board
        self._clock = clock or SystemClock()
        self._lanes: dict[str, _Lane] = {}
        self._ahead_seconds = 0.0
        """Of the board's clock before our own."""

    async def turn(
        self, key: str, *, patience_seconds: float, rate_max: float | None = None
    ) -> Turn | None:
        """Wait for a turn; None where none comes in time, or the breaker is open."""
        lane = self._lanes.setdefault(key, _Lane())
        deadline = asyncio.get_running_loop().time() + patience_seconds
        lane.waiting += 1
        try:
            async with asyncio.timeout(patience_seconds), lane.front:
                return await self._next(key, lane, deadline, rate_max or RATE_MAX)
        except TimeoutError:
            return None
        finally:
            lane.waiting -= 1

    async def accepted(self, turn: Turn) -> None:
        """The model answered, whatever it said."""
        lane = self._lanes[turn.key]
        lane.answered += 1
        if lane.pace.failures or lane.pace.probe_until:  # the others wait to hear of it
            await self._change(turn.key, lane, lambda pace, _now: recovered(pace, sent_at=turn.at))

    async def rejected(self, turn: Turn, retry_after_seconds: float | None) -> None:
        """The call was one too many."""
        lane = self._lanes[turn.key]
        lane.turns.clear()

        def reject(pace: Pace, now: float) -> Pace:
            return rejected(pace, now, sent_at=turn.at, retry_after_seconds=retry_after_seconds)

        await self._change(turn.key, lane, reject)

    async def failed(self, turn: Turn) -> None:
        """The call came to nothing."""
        lane = self._lanes[turn.key]
        await self._change(turn.key, lane, lambda pace, now: failed(pace, now, sent_at=turn.at))
        if self.is_out(turn.key):
            lane.turns.clear()

    def is_out(self, key: str) -> bool:
        """Whether the model failed so often that it is left alone."""
        lane = self._lanes.get(key)
        return lane is not None and lane.pace.failures >= FAILURES_MAX

    def wait_seconds(self, key: str) -> float:
        """How long to leave a model alone that is out, as far as is known here."""
        lane = self._lanes.get(key)
        left = lane.pace.blocked_until - self._now() if lane else 0.0
        return left if left > 0 else _ASK_AGAIN_SECONDS

    async def _next(self, key: str, lane: _Lane, deadline: float, rate_max: float) -> Turn | None:
        while True:
            while lane.turns and lane.turns[0] < self._now() - _AHEAD_SECONDS:
                lane.turns.popleft()  # nobody came for it in time
            if not lane.turns:
                turns = await self._reserve(key, lane, rate_max)
                if not turns.number:
                    wait = turns.at - self._now()
                    left = deadline - asyncio.get_running_loop().time()
                    if wait > left or self.is_out(key):
                        return None
                    await asyncio.sleep(max(min(wait, _ASK_AGAIN_SECONDS), 0.001))
                    continue
                lane.turns.extend(turns.at + n * turns.spacing for n in range(turns.number))
            at = lane.turns[0]
            if (wait := at - self._now()) > _SLACK_SECONDS:
                await asyncio.sleep(wait)
            if lane.turns and lane.turns[0] == at:  # else a refusal took it back meanwhile
                lane.turns.popleft()
                lane.used += 1
                return Turn(key, self._now())

    async def _reserve(self, key: str, lane: _Lane, rate_max: float) -> Turns:
        now = self._now()
        lately = lane.used * _AHEAD_SECONDS / max(now - lane.reserved_at, 1e-3)
        room = min(lane.pace.rate, rate_max) * _AHEAD_SECONDS
        wanted = max(1, int(min(max(lane.waiting, lately), room)))
        lane.reserved_at, lane.used = now, 0
        taken = Turns(0, now)

        def take(pace: Pace, now: float) -> Pace:
            nonlocal taken
            pace, taken = reserve(pace, now, wanted, rate_max=rate_max)
            return pace

        await self._change(key, lane, take)
        return taken

    async def _change(self, key: str, lane: _Lane, change: Callable[[Pace, float], Pace]) -> None:
        """Change the shared pace, and with it our own copy; our own alone without a board."""
        answered, lane.answered = lane.answered, 0

        def apply(pace: Pace, now: float) -> Pace:
            return change(accepted(pace, answered) if answered else pace, now)

        def replace(kept: bytes | None, now: float) -> bytes:
            return msgspec.msgpack.encode(apply(_read(kept) or lane.pace, now))

        try:
            changed = await self._board.change(key, replace) if self._board else None
        except asyncio.CancelledError:
            lane.answered += answered
            raise
        if changed is None:
            lane.pace = apply(lane.pace, self._now())
            return
        kept, now = changed
        lane.pace = _read(kept) or lane.pace
        self._ahead_seconds = now - self._clock.now().timestamp()

    def _now(self) -> float:
        return self._clock.now().timestamp() + self._ahead_seconds


def _read(kept: bytes | None) -> Pace | None:
    """A kept pace; None where there is none, or one of another version."""
    if kept is None:
        return None
    try:
        pace = msgspec.msgpack.decode(kept, type=Pace)
    except msgspec.DecodeError:
        return None
    return pace if pace.version == Pace().version else None
