"""The janitor: puts right what no ordinary step would, and reports what it healed.

A tick is safe to run at any time, by several janitors at once, with or without Temporal.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from itertools import groupby
from typing import Final, NamedTuple, TypeAlias

import structlog
from cronsim import CronSim

from everfill.autofill.dispatch import Dispatcher, Request
from everfill.autofill.queue import Queue
from everfill.infra.postgres import OUTAGES, Pool, load_queries
from everfill.kernel.ids import CollectionId, ColumnId

__all__ = ["Janitor", "JanitorReport", "roll_up_usage"]

_SQL: Final = load_queries("everfill.autofill", "janitor.sql")
_FUTURE: Final = timedelta(hours=1)  # a clock set back by less must not run a column twice
_STALLED_SECONDS: Final = 10.0  # a live dispatcher touches its run many times a second
_LOG: Final = structlog.stdlib.get_logger()

_Step: TypeAlias = Callable[[], Awaitable[Mapping[str, int]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class JanitorReport:
    """What one tick put right.

    Attributes:
        reclaimed: Cells taken back from workers that died.
        lost: Cells failed because every worker that held them died.
        retried: Cells whose delay after a transient failure was over.
        strays: Cells that nothing else would have moved.
        lanes_dropped: Lanes without work.
        resumed: Cells signalled for runs whose dispatcher died.
        scheduled: Cells signalled for columns that recompute by the clock.
        failed_steps: What could not be done this time, by name; the log says why.
    """

    reclaimed: int = 0
    lost: int = 0
    retried: int = 0
    strays: int = 0
    lanes_dropped: int = 0
    resumed: int = 0
    scheduled: int = 0
    failed_steps: tuple[str, ...] = ()


class _DueColumn(NamedTuple):
    collection_id: CollectionId
    column_id: ColumnId
    cron: str
    seen_at: datetime
    due_at: datetime


class Janitor:
    """Heals one installation.

    Args:
        pool: Connections to the migrated database.
        queue: What is healed.
        dispatcher: Goes on with runs, and starts those of the clock.
        now: A fixed clock for tests; None: the database's own.
    """

    def __init__(
        self, pool: Pool, queue: Queue, dispatcher: Dispatcher, *, now: datetime | None = None
    ) -> None:
        self._pool = pool
        self._queue = queue
        self._dispatcher = dispatcher
        self.now = now

    async def tick(self) -> JanitorReport:
        """Heal once. A step that fails is reported, and holds up none of the others.

        Raises:
            psycopg.OperationalError: Postgres does not answer; the tick may be repeated.
        """
        steps: dict[str, _Step] = {
            "reclaim": self._reclaim,
            "retry": self._retry,
            "heal": self._heal,
            "resume": self._resume,
            "schedule": self._schedule,
        }
        counts: dict[str, int] = {}
        failed: list[str] = []
        for name, step in steps.items():
            try:
                counts.update(await step())
            except OUTAGES:
                raise
            except Exception:  # noqa: BLE001 - one fault must not leave everything else unhealed
                _LOG.exception("janitor.step_failed", step=name)
                failed.append(name)
        report = JanitorReport(**counts, failed_steps=tuple(failed))
        if replace(report, lanes_dropped=0) != JanitorReport():  # lanes come and go every day
            _LOG.info("janitor.healed", **asdict(report))
        return report

    async def active_collections(self) -> Sequence[CollectionId]:
        """Collections that have work, and so should have a setup workflow."""
        async with self._pool.connection() as connection:
            cursor = await connection.execute(_SQL["active_collections"])
            return [CollectionId(row[0]) for row in await cursor.fetchall()]

    async def _reclaim(self) -> Mapping[str, int]:
        healed = await self._queue.reclaim()
        return {"reclaimed": healed.reclaimed, "lost": healed.lost}

    async def _retry(self) -> Mapping[str, int]:
        return {"retried": await self._queue.retry_due()}

    async def _heal(self) -> Mapping[str, int]:
        healed = await self._queue.heal()
        return {"strays": healed.strays, "lanes_dropped": healed.lanes_dropped}

    async def _resume(self) -> Mapping[str, int]:
        return {"resumed": await self._dispatcher.finish_stalled(idle_seconds=_STALLED_SECONDS)}

    async def _schedule(self) -> Mapping[str, int]:
        """Recompute columns whose time has come, each due time once; a run for each collection."""
        async with self._pool.connection() as connection:
            cursor = await connection.execute(_SQL["cron_columns"], {"now": self.now})
            due = [
                _DueColumn(row[0], row[1], row[2], row[3], due_at)
                for row in await cursor.fetchall()
                if (due_at := _last_due(row[2], seen_at=row[3], now=row[4]))
            ]
        cells = 0
        for collection_id, columns in groupby(due, lambda column: column.collection_id):
            cells += await self._run_due(collection_id, list(columns))
        return {"scheduled": cells}

    async def _run_due(self, collection_id: CollectionId, due: Sequence[_DueColumn]) -> int:
        """Mark the due times and record their run in one transaction, then signal the run."""
        params = {
            "columns": [column.column_id for column in due],
            "crons": [column.cron for column in due],
            "seen": [column.seen_at for column in due],
            "due": [column.due_at for column in due],
        }
        async with self._pool.connection() as connection, connection.transaction():
            cursor = await connection.execute(_SQL["mark_cron"], params)
            won = [ColumnId(row[0]) for row in await cursor.fetchall()]
            if not won:
                return 0
            request = Request(collection_id=collection_id, columns=won, force=True, reason="cron")
            run_id = await self._dispatcher.start_run(connection, request)
        return (await self._dispatcher.finish(run_id)).cells if run_id else 0


async def roll_up_usage(pool: Pool, collection_id: CollectionId) -> None:
    """Sum up what a collection spent; each usage row once."""
    async with pool.connection() as connection:
        await connection.execute(_SQL["roll_up_usage"], {"collection_id": collection_id})


def _last_due(cron: str, *, seen_at: datetime, now: datetime) -> datetime | None:
    """The newest due time after `seen_at` that has come; missed ones are not made up for.

    Where `seen_at` cannot be, because the clock was ahead then, the newest one counts as not seen.
    """
    inclusive = now.replace(microsecond=now.microsecond or 1)  # a whole second counts as come
    last = next(CronSim(cron, inclusive, reverse=True), None)
    is_new = last is not None and (last > seen_at or seen_at > now + _FUTURE)
    return last if is_new else None
