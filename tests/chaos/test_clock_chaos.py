"""A clock that jumps, forward or back, loses no cell and leaves nothing held for ever.

The clock that decides is the database's: the queue is given one that jumps in its place. Each
worker's own clock jumps too, which may spoil what is told of a call and nothing else.
"""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from rig import COLLECTION_CAP, open_rig, until, worker_parts

from engine import Engine
from everfill.autofill.columns import ColumnDraft
from everfill.autofill.dispatch import Lane, Request
from everfill.autofill.janitor import Janitor
from everfill.autofill.queue import Capacity, ClaimedCell, Outcome, OutcomeKind, Queue
from everfill.compute.protocol import CostClass
from everfill.infra.postgres import Pool
from everfill.kernel.ids import CollectionId
from everfill.tables.schema import Schedule

YEAR = timedelta(days=365)
JUMPS = [timedelta(seconds=3), timedelta(hours=1), timedelta(days=1), YEAR, 20 * YEAR]
SLOW = {"seconds": 0.1}
ONE = ColumnDraft(name="one", kind="test:slow", template="1 {{word}}", options=SLOW)
TWO = ColumnDraft(name="two", kind="test:slow", template="2 {{one}}", options=SLOW)
COUNT = ColumnDraft(name="one", kind="test:count", template="1 {{word}}")
HOURLY = Schedule(mode="cron", cron="0 * * * *")
EVERYTHING = [
    Capacity(cost_class=name, interactive_max=1_000, bulk_max=1_000, total_max=1_000)
    for name in CostClass
]


class ShiftedQueue(Queue):
    """A queue whose clock is wrong by `shift`."""

    shift = timedelta()

    @property
    def now(self) -> datetime:
        return datetime.now(UTC) + self.shift

    @now.setter
    def now(self, value: datetime | None) -> None:
        assert value is None, "this clock runs by itself"


class JumpingClock:
    """A worker's clock that keeps no promise."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def now(self) -> datetime:
        return datetime.now(UTC) + self._chance.choice(JUMPS) * self._chance.choice([-1, 1])

    def monotonic_seconds(self) -> float:
        return self._chance.uniform(-1e9, 1e9)


async def run_chaos(
    engine: Engine, pool: Pool, url: str, *, seed: int, words: int, jumps: int
) -> None:
    clock = ShiftedQueue(pool)
    async with (
        open_rig(replace(engine, queue=clock), seed) as rig,
        worker_parts(engine, url) as make_worker,
    ):
        for name in ("a", "b"):
            await rig.make(name, ONE, TWO, words=words)
        own = JumpingClock(rig.chance)
        shared = [make_worker(queue=clock, clock=own) for _ in range(2)]
        for worker in shared:
            rig.start(worker)
        kills = 0
        for number in range(jumps):
            cells = 2 * len(rig.tables) * words * number // jumps  # spread over the whole run
            await until(lambda cells=cells: reached(rig.engine, cells))
            clock.shift = rig.chance.choice(JUMPS) * rig.chance.choice([-1, 1])
            if rig.chance.random() < 0.5:
                await rig.kill_one()
                rig.start(make_worker(queue=clock, clock=own))
                kills += 1
            await rig.tend()
            await rig.sample()
        clock.shift = timedelta()
        await rig.settle()
        await rig.check()
        assert kills > 0
        assert rig.spare_calls() <= (jumps + kills) * COLLECTION_CAP * len(rig.tables)


async def reached(engine: Engine, cells: int) -> bool:
    """Whether so many cells have been computed, or there is nothing left to compute."""
    async with engine.pool.connection() as connection:
        cursor = await connection.execute("select exists (select from queue)")
        (busy,) = await cursor.fetchone() or (False,)
    return len(engine.calls()) >= cells or not busy


@pytest.mark.chaos
async def test_a_jumping_clock_loses_and_spoils_nothing(
    engine: Engine, pool: Pool, database_url: str
) -> None:
    await run_chaos(engine, pool, database_url, seed=2, words=60, jumps=8)


@pytest.mark.chaos
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
async def test_a_clock_that_jumps_all_the_time_loses_and_spoils_nothing(
    engine: Engine, pool: Pool, database_url: str, seed: int
) -> None:
    await run_chaos(engine, pool, database_url, seed=300 + seed, words=400, jumps=40)


async def claimed_in_the_future(pool: Pool, shift: timedelta = YEAR) -> list[ClaimedCell]:
    """Cells that a worker claimed while the clock was ahead; the clock is right again."""
    ahead = Queue(pool, now=datetime.now(UTC) + shift)
    cells = await ahead.claim("gone", EVERYTHING, lease_seconds=30)
    assert cells
    return cells


async def table_of(engine: Engine, *drafts: ColumnDraft) -> CollectionId:
    table = await engine.table("t", ColumnDraft(name="word"), *drafts)
    await engine.add(table, word="a")
    return table


@pytest.mark.chaos
@pytest.mark.parametrize("shift", [timedelta(minutes=5), YEAR], ids=["minutes", "year"])
@pytest.mark.parametrize("renewed", [False, True], ids=["claimed", "renewed"])
async def test_a_lease_that_was_given_in_the_future_holds_no_cell_for_long(
    engine: Engine, pool: Pool, shift: timedelta, *, renewed: bool
) -> None:
    table = await table_of(engine, COUNT)
    (cell,) = await claimed_in_the_future(pool, timedelta() if renewed else shift)
    if renewed:
        ahead = Queue(pool, now=datetime.now(UTC) + shift)
        await ahead.renew([cell.claim_id], lease_seconds=30)

    await engine.settle(table)

    assert await engine.value(table, cell.row_id, "one") == "1 a"
    assert (await engine.queue.health()).claims == 0


@pytest.mark.chaos
async def test_a_retry_that_is_due_in_the_far_future_is_tried_now(
    engine: Engine, pool: Pool
) -> None:
    table = await table_of(engine, COUNT)
    (cell,) = await claimed_in_the_future(pool)
    failed = Outcome(cell, -1, OutcomeKind.RETRY, reason="{}", delay_seconds=1)
    ahead = Queue(pool, now=datetime.now(UTC) + YEAR)
    await ahead.finalize(table, [failed], ended=[cell.claim_id])

    await engine.settle(table)

    assert await engine.value(table, cell.row_id, "one") == "1 a"


@pytest.mark.chaos
async def test_a_run_whose_dispatcher_died_in_the_far_future_is_resumed(engine: Engine) -> None:
    table = await table_of(engine, COUNT)
    await engine.settle(table)
    async with engine.pool.connection() as connection, connection.transaction():
        request = Request(collection_id=table, lane=Lane.BULK, force=True)
        await engine.dispatcher.start_run(connection, request)
        await connection.execute("update runs set touched_at = now() + interval '1 year'")

    report = await Janitor(engine.pool, engine.queue, engine.dispatcher).tick()

    assert report.resumed == 1
    await engine.settle(table)
    assert engine.calls() == {"1 a": 2}


@pytest.mark.chaos
async def test_a_column_that_ran_by_a_clock_a_year_ahead_runs_again_this_year(
    engine: Engine,
) -> None:
    table = await table_of(engine, replace(COUNT, schedule=HOURLY))
    ahead = datetime.now(UTC) + YEAR
    assert (await Janitor(engine.pool, engine.queue, engine.dispatcher, now=ahead).tick()).scheduled
    await engine.settle(table)

    later = datetime.now(UTC) + timedelta(hours=1)
    janitor = Janitor(engine.pool, engine.queue, engine.dispatcher, now=later)

    assert (await janitor.tick()).scheduled == 1
    assert (await janitor.tick()).scheduled == 0
