"""Workers that are killed and workers that outlive their lease lose, spoil and exceed nothing."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from obstore.store import MemoryStore

from engine import Announced
from everfill.autofill.columns import ColumnDraft, ColumnKeeper
from everfill.autofill.dispatch import Dispatcher, Lane, Only, Request
from everfill.autofill.edits import Edits, SourceValues
from everfill.autofill.immediate import Immediate
from everfill.autofill.queue import Queue
from everfill.compute.protocol import ComputeContext
from everfill.infra.blobs import Blobs
from everfill.infra.postgres import Pool
from everfill.kernel.config import Settings
from everfill.kernel.ids import CellKey, CollectionId, ColumnId, RowId
from everfill.tables.definitions import Definitions

WORKER = Path(__file__).with_name("queue_worker.py")
PATIENCE_SECONDS = 120
LEASE_SECONDS = 0.5
COLLECTION_CAP = 30
NAMESPACE_CAP = 50
ARRIVING_ROWS = 20
WORKERS = 3
_IN_FLIGHT = """
    select coalesce(sum(n), 0)::int, coalesce(max(n), 0)::int
    from (select sum(n) as n from claims group by collection_id) c
"""
_WRONG = """
    select count(*) from cells a
    join columns c on c.column_id = a.column_id and c.kind is not null
    join column_references e on e.column_id = a.column_id
    join cells u on u.collection_id = a.collection_id and u.row_id = a.row_id
        and u.column_id = e.upstream_id
    where a.status = 'ready'
        and a.computed_value #>> '{}' <> (coalesce(u.user_value, u.computed_value) #>> '{}') || ''''
"""
_COMPUTED = """
    select count(*) from cells a join columns c using (column_id)
    where c.kind is not null and a.status = 'ready'
"""


@dataclass
class Chaos:
    """Two tables, some workers, and a hand that kills them."""

    pool: Pool
    queue: Queue
    url: str
    chance: random.Random
    rows: int
    tables: list[CollectionId] = field(default_factory=list)
    inputs: dict[CollectionId, ColumnId] = field(default_factory=dict)
    arrived: int = 0
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    spawned: int = 0
    over: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        blobs = Blobs(MemoryStore())
        context = ComputeContext(settings=Settings(), files=blobs)
        immediate = Immediate(blobs=blobs, context=context, sink=Announced())
        self.dispatcher = Dispatcher(self.pool, self.queue, blobs, Announced(), immediate)
        self.edits = Edits(self.pool, self.queue, blobs, self.dispatcher)

    async def make(self) -> None:
        keeper = ColumnKeeper(self.pool, self.queue)
        for name in ("one", "two"):
            async with self.pool.connection() as connection:
                definitions = Definitions(connection)
                await definitions.ensure_namespace("n", cap_cells=NAMESPACE_CAP)
                made = await definitions.create_collection("n", name, cap_cells=COLLECTION_CAP)
            key = made.collection_id
            self.tables.append(key)
            self.inputs[key] = await keeper.add(key, ColumnDraft(name="x"), author="test")
            for column, template in (("a", "{{x}}'"), ("b", "{{a}}'"), ("c", "{{b}}'")):
                draft = ColumnDraft(name=column, kind="template", template=template)
                await keeper.add(key, draft, author="test")
            await self.edits.append_rows(
                key, [{self.inputs[key]: f"{n}"} for n in range(self.rows)], author="test"
            )

    def spawn(self) -> None:
        self.spawned += 1
        command = [sys.executable, str(WORKER), self.url, str(self.spawned), str(LEASE_SECONDS)]
        self.workers.append(subprocess.Popen(command, env=os.environ))

    def kill(self) -> None:
        worker = self.workers.pop(self.chance.randrange(len(self.workers)))
        worker.kill()
        worker.wait()

    async def disturb(self) -> None:
        """One edit, bulk run, kill, cancellation, or rows that arrive while others edit them."""
        key = self.chance.choice(self.tables)
        match self.chance.randrange(8):
            case 0:
                self.kill()
                self.spawn()
            case 1:
                await self.dispatcher.dispatch(
                    Request(collection_id=key, lane=Lane.BULK, force=True)
                )
            case 2:
                done = await self.dispatcher.dispatch(Request(collection_id=key, lane=Lane.BULK))
                assert done.run_id is not None
                await self.dispatcher.cancel(key, done.run_id)
            case 3:
                await asyncio.gather(self.arrive(key), *(self.edit(key) for _ in range(3)))
            case _:
                await self.edit(key)

    async def arrive(self, key: CollectionId) -> None:
        """New rows come from a source, and are filled where they are dispatched."""
        x = self.inputs[key]
        names = range(self.arrived, self.arrived + ARRIVING_ROWS)
        self.arrived += ARRIVING_ROWS
        batch = [SourceValues(f"{key} {name}", {x: f"{name}"}) for name in names]
        await self.edits.take_rows(key, batch, update=False)
        await self.dispatcher.dispatch(Request(collection_id=key, only=Only.UNFINISHED))

    async def edit(self, key: CollectionId) -> None:
        """Type over an input, of a row that has just arrived as well."""
        async with self.pool.connection() as connection:
            cursor = await connection.execute(
                "select max(row_id) from rows where collection_id = %s", [key]
            )
            ((last,),) = await cursor.fetchall()
        row = RowId(self.chance.choice([last, self.chance.randint(1, last)]))
        cell = CellKey(row, self.inputs[key])
        value = f"{self.chance.randrange(1_000_000)}"
        await self.edits.set_cells(key, {cell: value}, author="test")

    async def tend(self) -> None:
        """What the janitor does."""
        await self.queue.reclaim()
        await self.queue.heal()

    async def sample(self) -> None:
        async with self.pool.connection() as connection:
            cursor = await connection.execute(_IN_FLIGHT)
            total, most = await cursor.fetchone() or (0, 0)
        if total > NAMESPACE_CAP or most > COLLECTION_CAP:
            self.over.append((total, most))

    async def scalar(self, statement: str) -> int:
        async with self.pool.connection() as connection:
            row = await (await connection.execute(statement.encode())).fetchone()
        assert row
        return row[0]

    async def settled(self) -> bool:
        await self.tend()
        await self.sample()
        return all([await self.queue.is_idle(key) for key in self.tables])

    async def outdated(self) -> int:
        return await self.scalar("select count(*) from cells where status = 'outdated'")


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await condition():
            await asyncio.sleep(0.02)


async def run_chaos(pool: Pool, url: str, *, seed: int, rows: int, steps: int) -> None:
    chaos = Chaos(pool, Queue(pool), url, random.Random(seed), rows)
    await chaos.make()
    for _ in range(WORKERS):
        chaos.spawn()
    try:
        for _ in range(steps):
            await chaos.disturb()
            await chaos.tend()
            await chaos.sample()
            await asyncio.sleep(0.01)
        await until(chaos.settled)
        while await chaos.outdated():
            for key in chaos.tables:
                await chaos.dispatcher.dispatch(Request(collection_id=key, only=Only.OUTDATED))
            await until(chaos.settled)
        await check(chaos, rows)
    finally:
        while chaos.workers:
            chaos.kill()


async def check(chaos: Chaos, rows: int) -> None:
    assert chaos.over == [], "a cap was exceeded"
    all_rows = rows * len(chaos.tables) + chaos.arrived
    assert await chaos.scalar(_COMPUTED) == 3 * all_rows, "a cell was lost"
    assert await chaos.scalar(_WRONG) == 0, "a stale value stands"
    deadlocks = "select deadlocks from pg_stat_database where datname = current_database()"
    assert await chaos.scalar(deadlocks) == 0


@pytest.mark.chaos
async def test_a_short_chaos_loses_and_spoils_nothing(pool: Pool, database_url: str) -> None:
    await run_chaos(pool, database_url, seed=1, rows=40, steps=60)


@pytest.mark.chaos
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
async def test_a_long_chaos_loses_and_spoils_nothing(
    pool: Pool, database_url: str, seed: int
) -> None:
    await run_chaos(pool, database_url, seed=100 + seed, rows=300, steps=1_000)
