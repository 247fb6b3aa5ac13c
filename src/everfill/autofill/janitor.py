"""The janitor: puts right what no ordinary step would, and reports what it healed.

A tick is safe to run at any time, by several janitors at once, with or without Temporal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Final

import structlog
from cronsim import CronSim

from everfill.autofill.dispatch import Dispatcher, Request
from everfill.autofill.queue import Queue
from everfill.infra.postgres import Pool, load_queries
from everfill.kernel.clock import Clock, SystemClock
from everfill.kernel.ids import CollectionId

__all__ = ["Janitor", "JanitorReport", "roll_up_usage"]

_SQL: Final = load_queries("everfill.autofill", "janitor.sql")
_STALLED_SECONDS: Final = 10.0  # a live dispatcher touches its run many times a second
_LOG: Final = structlog.stdlib.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class JanitorReport:
    """What one tick put right.

    Attributes:
        reclaimed: Cells taken back from workers that died.
        lost: Cells failed because every worker that held them died.
        retried: Cells whose delay after a transient failure was over.
        strays: Cells that nothing else would have moved.
        lanes_dropped: Lanes without work.
        dispatched: Cells signalled for runs whose dispatcher died, and for columns by the clock.
    """

    reclaimed: int = 0
    lost: int = 0
    retried: int = 0
    strays: int = 0
    lanes_dropped: int = 0
    dispatched: int = 0


class Janitor:
    """Heals one installation."""

    def __init__(
        self, pool: Pool, queue: Queue, dispatcher: Dispatcher, clock: Clock | None = None
    ) -> None:
        self._pool = pool
        self._queue = queue
        self._dispatcher = dispatcher
        self._clock = clock or SystemClock()

    async def tick(self) -> JanitorReport:
        """Heal once."""
        reclaimed = await self._queue.reclaim()
        retried = await self._queue.retry_due()
        healed = await self._queue.heal()
        dispatched = await self._dispatcher.finish_stalled(idle_seconds=_STALLED_SECONDS)
        dispatched += await self._dispatch_cron()
        report = JanitorReport(
            reclaimed=reclaimed.reclaimed,
            lost=reclaimed.lost,
            retried=retried,
            strays=healed.strays,
            lanes_dropped=healed.lanes_dropped,
            dispatched=dispatched,
        )
        if any((reclaimed.reclaimed, reclaimed.lost, healed.strays, dispatched)):
            _LOG.info("janitor.healed", **asdict(report))
        return report

    async def active_collections(self) -> Sequence[CollectionId]:
        """Collections that have work, and so should have a setup workflow."""
        async with self._pool.connection() as connection:
            cursor = await connection.execute(_SQL["active_collections"])
            return [CollectionId(row[0]) for row in await cursor.fetchall()]

    async def _dispatch_cron(self) -> int:
        """Recompute columns whose time has come, each due time once."""
        async with self._pool.connection() as connection:
            found = await (await connection.execute(_SQL["cron_columns"])).fetchall()
        cells = 0
        for collection_id, column_id, cron, seen_at in found:
            due_at = _last_due(cron, seen_at, self._clock.now())
            if due_at and await self._mark_cron(column_id, seen_at, due_at):
                request = Request(
                    collection_id=collection_id, columns=[column_id], force=True, reason="cron"
                )
                cells += (await self._dispatcher.dispatch(request)).cells
        return cells

    async def _mark_cron(self, column_id: int, seen_at: datetime, due_at: datetime) -> bool:
        params: dict[str, Any] = {"column_id": column_id, "seen_at": seen_at, "due_at": due_at}
        async with self._pool.connection() as connection:
            return (await connection.execute(_SQL["mark_cron"], params)).rowcount == 1


async def roll_up_usage(pool: Pool, collection_id: CollectionId) -> None:
    """Sum up what a collection spent; each usage row once."""
    async with pool.connection() as connection:
        await connection.execute(_SQL["roll_up_usage"], {"collection_id": collection_id})


def _last_due(cron: str, seen_at: datetime, now: datetime) -> datetime | None:
    """The newest due time after `seen_at` that has come; missed ones are not made up for."""
    backwards = CronSim(cron, now, reverse=True)
    last: datetime = next(backwards)
    return last if last > seen_at else None
