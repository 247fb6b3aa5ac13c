"""An engine whose workers may be killed, and what must hold whatever was done to it.

The workers run inside the test, over pools of their own, so that faults can be put between them
and the servers; the test itself reaches the database directly. A worker is killed by ending all of
its tasks at once: it gives nothing back.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from engine import Announced, Engine
from everfill.autofill.bus import Bus
from everfill.autofill.cell_worker import CellWorker
from everfill.autofill.columns import ColumnDraft
from everfill.autofill.dispatch import Only, Request
from everfill.autofill.finalizer import CompletionSink
from everfill.autofill.janitor import Janitor
from everfill.autofill.queue import Queue
from everfill.compute.protocol import ComputeContext
from everfill.infra.postgres import Pool, open_pool
from everfill.kernel.clock import Clock
from everfill.kernel.config import WorkerSettings
from everfill.kernel.ids import CollectionId, ColumnId, RowId
from everfill.kernel.tasks import end_tasks
from everfill.tables import templates
from everfill.tables.cells import Cell, Cells, CellStatus
from everfill.tables.schema import Column
from everfill.tables.values import MISSING

PATIENCE_SECONDS = 120
LEASE_SECONDS = 2.0
COLLECTION_CAP = 40
NAMESPACE_CAP = 60
_ROWS = "select row_id from rows where collection_id = %s order by row_id"
_SET_CAPS = "update {} set cap_cells = %s"
_IN_FLIGHT = """
    select coalesce(sum(n), 0)::int, coalesce(max(n), 0)::int
    from (select sum(n) as n from claims group by collection_id) c
"""
_LEFT = "select (select count(*) from queue), (select count(*) from claims)"
_DEADLOCKS = "select deadlocks from pg_stat_database where datname = current_database()"


@dataclass(eq=False)
class Hand:
    """A worker inside the test."""

    worker: CellWorker
    running: asyncio.Task[None]

    async def kill(self) -> None:
        """End it as a killed process ends: at once, and giving nothing back."""
        tasks = [self.running, *self.worker._tasks, *self.worker._finalizer._tasks.values()]
        await end_tasks(tasks)


@dataclass
class Rig:
    """An engine, its workers, and a look at the caps now and then."""

    engine: Engine
    chance: random.Random
    tables: list[CollectionId] = field(default_factory=list)
    hands: list[Hand] = field(default_factory=list)
    over: list[tuple[int, int]] = field(default_factory=list)
    samples: int = 0

    async def make(self, name: str, *drafts: ColumnDraft, words: int) -> CollectionId:
        """A table of words with computed columns, under the caps; its cells are dispatched."""
        table = await self.engine.table(name, ColumnDraft(name="word"), *drafts)
        self.tables.append(table)
        async with self.engine.pool.connection() as connection:
            for what, cap in (("collections", COLLECTION_CAP), ("namespaces", NAMESPACE_CAP)):
                await connection.execute(_SET_CAPS.format(what).encode(), [cap])
        word = (await self.engine.schema(table)).ids["word"]
        rows = [{word: f"{name}{n}"} for n in range(words)]
        await self.engine.edits.append_rows(table, rows, author="test")
        return table

    def start(self, worker: CellWorker) -> Hand:
        hand = Hand(worker, asyncio.create_task(worker.run()))
        self.hands.append(hand)
        return hand

    async def kill_one(self) -> None:
        await self.hands.pop(self.chance.randrange(len(self.hands))).kill()

    async def kill_all(self) -> None:
        while self.hands:
            await self.hands.pop().kill()

    async def tend(self) -> None:
        """What the janitor does."""
        engine = self.engine
        janitor = Janitor(engine.pool, engine.queue, engine.dispatcher, now=engine.queue.now)
        await janitor.tick()

    async def sample(self) -> None:
        """Look whether more is in flight than may be."""
        total, most = await self.look(_IN_FLIGHT)
        self.samples += 1
        if total > NAMESPACE_CAP or most > COLLECTION_CAP:
            self.over.append((total, most))

    async def look(self, statement: str) -> Sequence[int]:
        async with self.engine.pool.connection() as connection:
            row = await (await connection.execute(statement.encode())).fetchone()
        assert row
        return row

    async def settle(self) -> None:
        """Wait until nothing is left to do, then have done again what says that it is outdated."""
        await until(self._settled)
        while outdated := [table for table in self.tables if await self.outdated(table)]:
            for table in outdated:
                await self.engine.dispatcher.dispatch(
                    Request(collection_id=table, only=Only.OUTDATED)
                )
            await until(self._settled)

    async def _settled(self) -> bool:
        await self.tend()
        await self.sample()
        idle = all([await self.engine.queue.is_idle(table) for table in self.tables])
        return idle and await self.look(_LEFT) == (0, 0)

    async def outdated(self, table: CollectionId) -> int:
        return (await self.engine.counts(table)).get("outdated", 0)

    async def check(self) -> None:
        """No cell lost, none wrong, nothing stuck, no cap exceeded, no deadlock."""
        assert self.samples > 0
        assert self.over == [], "a cap was exceeded"
        assert await self.look(_LEFT) == (0, 0), "something is stuck"
        for table in self.tables:
            assert await wrong_cells(self.engine, table) == []
        assert await self.look(_DEADLOCKS) == (0,)

    def spare_calls(self) -> int:
        """Calls beyond one for each text that was ever computed."""
        calls = self.engine.calls()
        return sum(calls.values()) - len(calls)


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await condition():
            await asyncio.sleep(0.02)


async def wrong_cells(engine: Engine, table: CollectionId) -> list[str]:
    """The computed cells that do not show what their definition makes of what is shown now."""
    schema = await engine.schema(table)
    async with engine.pool.connection() as connection:
        found = await (await connection.execute(_ROWS.encode(), [table])).fetchall()
        rows = [RowId(row[0]) for row in found]
        page = await Cells(connection, engine.blobs).read(schema, rows)
    assert rows, "a table without rows shows nothing"
    return [
        f"row {row}, {column.name}: {wrong}"
        for row in rows
        for column in schema.computed
        if (wrong := _wrong(column, page[row]))
    ]


def _wrong(column: Column, cells: Mapping[ColumnId, Cell]) -> str | None:
    """Why one cell is wrong, or None. What a person typed over is right whatever it hides."""
    cell = cells.get(column.column_id, Cell())
    if cell.user_value is not MISSING:
        return None
    assert column.computation
    shown = {key: cells.get(key, Cell()).value for key in column.upstreams}
    if any(value is MISSING for value in shown.values()):
        return None if cell.status == CellStatus.WAITING else f"{cell.status} without its input"
    expected = templates.render(column.computation.template, lambda key: str(shown[key]))
    if cell.status != CellStatus.READY or cell.value != expected:
        return f"{cell.status} {cell.value!r}, not {expected!r} ({cell.reason})"
    return None


@asynccontextmanager
async def open_rig(engine: Engine, seed: int) -> AsyncGenerator[Rig, None]:
    """A rig; a failure under it names the seed, and no worker outlives it."""
    rig = Rig(engine, random.Random(seed))
    try:
        yield rig
    except BaseException as error:
        error.add_note(f"The seed was {seed}.")
        raise
    finally:
        await rig.kill_all()


@asynccontextmanager
async def worker_parts(
    engine: Engine, url: str, redis: str | None = None
) -> AsyncGenerator[Callable[..., CellWorker], None]:
    """A maker of workers that reach Postgres, and Redis, by the given ways."""
    async with AsyncExitStack() as stack:
        pool = await stack.enter_async_context(open_pool(url, size_max=6))
        sink = await stack.enter_async_context(Bus.open(redis)) if redis else Announced()

        def make(
            *, queue: Queue | None = None, clock: Clock | None = None, **settings: object
        ) -> CellWorker:
            return make_worker(engine, pool, queue or Queue(pool), sink, clock, **settings)

        yield make


def make_worker(
    engine: Engine,
    pool: Pool,
    queue: Queue,
    sink: CompletionSink,
    clock: Clock | None = None,
    **settings: object,
) -> CellWorker:
    given = {"poll_seconds": 0.05, "lease_seconds": LEASE_SECONDS, **settings}
    return CellWorker(
        pool=pool,
        queue=queue,
        blobs=engine.blobs,
        sink=sink,
        context=ComputeContext(settings=engine.settings, files=engine.blobs),
        settings=WorkerSettings.model_validate(given),
        clock=clock,
    )
