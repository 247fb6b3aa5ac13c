"""Connections that are cut, fall silent or lose an answer cost no cell and no second call."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from proxy import Proxy, postgres_proxy, postgres_url, redis_proxy, redis_url
from rig import COLLECTION_CAP, PATIENCE_SECONDS, Rig, open_rig, worker_parts

from engine import Engine
from everfill.autofill.cell_worker import CellWorker
from everfill.autofill.columns import ColumnDraft
from everfill.infra.postgres import OUTAGES, open_pool, pool
from everfill.infra.stack import Endpoints

ONE = ColumnDraft(name="one", kind="test:count", template="1 {{word}}")
TWO = ColumnDraft(name="two", kind="test:count", template="2 {{one}}")
THREE = ColumnDraft(name="three", kind="test:count", template="3 {{one}} {{two}}")
HELD_SECONDS = 0.7
REPROCESS_CHANCE = 0.25


@dataclass
class Line:
    """The way to the servers, and what makes workers at its other end."""

    postgres: Proxy
    redis: Proxy
    make_worker: Callable[..., CellWorker]


@asynccontextmanager
async def open_line(engine: Engine, url: str, stack: Endpoints) -> AsyncGenerator[Line, None]:
    async with (
        postgres_proxy(url) as postgres,
        redis_proxy(stack.redis_url) as redis,
        worker_parts(engine, postgres_url(url, postgres), redis_url(redis)) as make_worker,
    ):
        yield Line(postgres, redis, make_worker)


async def disturb(line: Line, chance: random.Random, fault: int) -> None:
    """One fault of the network."""
    match fault:
        case 0:
            line.postgres.cut_all()
            line.redis.cut_all()
        case 1:
            line.postgres.cut_one(chance)
        case 2:
            line.postgres.cut_in_statement()
        case 3:
            line.postgres.lose_commit()
        case 4:
            line.redis.hold()
            line.postgres.hold()
            await asyncio.sleep(chance.uniform(0, HELD_SECONDS))
            if chance.random() < 0.5:  # silent for good: somebody ends what never answers
                line.postgres.cut_all()
            line.postgres.resume()
            line.redis.resume()
        case _:
            line.redis.cut_all()


async def edit(rig: Rig) -> int:
    """Something that people do meanwhile; how many cells that computes anew for one text."""
    table = rig.chance.choice(rig.tables)
    if rig.chance.random() < REPROCESS_CHANCE:
        return await rig.engine.reprocess(table)
    word = f"w{rig.chance.randrange(1_000_000)}"
    await rig.engine.set(table, rig.chance.randint(1, 50), "word", word)
    return 0


async def run_chaos(
    engine: Engine, url: str, stack: Endpoints, *, seed: int, rows: int, faults: int
) -> None:
    async with open_rig(engine, seed) as rig, open_line(engine, url, stack) as line:
        for name in ("a", "b"):
            await rig.make(name, ONE, TWO, THREE, words=rows)
        for _ in range(2):
            rig.start(line.make_worker())
        forced = 0
        for number in range(faults):
            await disturb(line, rig.chance, number % 6)
            forced += await edit(rig)
            await rig.tend()
            await rig.sample()
            await asyncio.sleep(rig.chance.uniform(0, 0.3))
        await rig.settle()
        await rig.check()
        assert rig.spare_calls() <= forced + faults * COLLECTION_CAP
        assert line.postgres.done["commit lost"] > 0
        assert line.postgres.done["cut in a statement"] > 0
        assert line.postgres.done["cut"] > faults // 6


@pytest.mark.chaos
async def test_cut_silent_and_deaf_connections_lose_and_spoil_nothing(
    engine: Engine, database_url: str, stack: Endpoints
) -> None:
    await run_chaos(engine, database_url, stack, seed=1, rows=150, faults=12)


@pytest.mark.chaos
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
async def test_a_long_time_on_a_bad_line_loses_and_spoils_nothing(
    engine: Engine, database_url: str, stack: Endpoints, seed: int
) -> None:
    await run_chaos(engine, database_url, stack, seed=200 + seed, rows=600, faults=80)


@pytest.mark.chaos
async def test_a_finalize_whose_answer_was_lost_is_repeated_and_computes_nothing_twice(
    engine: Engine, database_url: str, stack: Endpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_rig(engine, 0) as rig, open_line(engine, database_url, stack) as line:
        await rig.make("lost", ONE, TWO, words=20)
        worker = line.make_worker(lease_seconds=600)
        finalize, attempts = worker._queue.finalize, 0

        async def lossy(*given: Any, **named: Any) -> object:
            nonlocal attempts
            attempts += 1
            if attempts % 2:  # the first of each pair happens, and its answer is lost
                line.postgres.lose_commit()
            return await finalize(*given, **named)

        monkeypatch.setattr(worker._queue, "finalize", lossy)
        rig.start(worker)
        await rig.settle()
        await rig.check()
        assert line.postgres.done["commit lost"] == (attempts + 1) // 2 >= 2
        assert len(engine.calls()) == 40
        assert rig.spare_calls() == 0


@pytest.mark.chaos
async def test_who_falls_silent_inside_a_transaction_does_not_hold_the_others_up_for_ever(
    engine: Engine, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(pool._SESSION, "idle_in_transaction_session_timeout", "500ms")
    async with (
        open_rig(engine, 0) as rig,
        postgres_proxy(database_url) as proxy,
        open_pool(postgres_url(database_url, proxy)) as silent,
        worker_parts(engine, database_url) as make_worker,
    ):
        table = await rig.make("held", ONE, words=10)

        async def hold_lock() -> None:
            async with silent.connection() as connection, connection.transaction():
                await engine.queue.lock(connection, table)
                proxy.hold()
                rig.start(make_worker())
                try:
                    await rig.settle()  # nobody told Postgres that the holder is gone
                finally:
                    proxy.resume()

        with pytest.raises(OUTAGES):
            await hold_lock()
        await rig.check()


@pytest.mark.chaos
async def test_a_worker_that_stops_amid_an_outage_ends(
    engine: Engine, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was cancelled on its way may come back as one more outage."""
    mending = asyncio.Event()

    async def outage() -> None:
        mending.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise psycopg.OperationalError("the connection is closed") from None

    async with open_rig(engine, 0) as rig, worker_parts(engine, database_url) as make_worker:
        worker = make_worker()
        monkeypatch.setattr(worker._queue, "retry_due", outage)
        hand = rig.start(worker)
        await mending.wait()
        worker.stop()
        await asyncio.wait_for(hand.running, PATIENCE_SECONDS)
