from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from engine import Engine
from everfill.autofill.columns import ColumnDraft
from everfill.autofill.dispatch import Request
from everfill.autofill.janitor import Janitor, JanitorReport
from everfill.autofill.queue import Capacity, Queue
from everfill.compute.protocol import CostClass
from everfill.infra.postgres import OUTAGES
from everfill.kernel.ids import CollectionId, ColumnId
from everfill.tables.schema import Schedule

CREATED = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
SIX = datetime(2026, 3, 2, 6, 0, tzinfo=UTC)
HOURLY = Schedule(mode="cron", cron="0 * * * *")
AT_SIX = Schedule(mode="cron", cron="0 6 * * *")
EVERYTHING = [
    Capacity(cost_class=name, interactive_max=1_000, bulk_max=1_000, total_max=1_000)
    for name in CostClass
]


def janitor(engine: Engine, now: datetime | None = None, queue: Queue | None = None) -> Janitor:
    return Janitor(engine.pool, queue or engine.queue, engine.dispatcher, now=now)


async def clocked(engine: Engine, schedule: Schedule = AT_SIX) -> CollectionId:
    """A table of three rows with a column that recomputes by the clock, as if made on 1 March."""
    table = await engine.table("clocked", ColumnDraft(name="word"))
    for word in ("a", "b", "c"):
        await engine.add(table, word=word)
    draft = ColumnDraft(name="one", kind="test:count", template="1 {{word}}", schedule=schedule)
    await engine.columns.add(table, draft, author="test")
    await engine.reprocess(table)
    await engine.settle(table)
    async with engine.pool.connection() as connection:
        await connection.execute("update columns set created_at = %s", [CREATED])
    return table


async def run_reasons(engine: Engine) -> list[str]:
    async with engine.pool.connection() as connection:
        cursor = await connection.execute("select reason from runs order by run_id")
        return [row[0] for row in await cursor.fetchall()]


async def test_a_tick_with_nothing_to_heal_reports_nothing(engine: Engine) -> None:
    assert await janitor(engine).tick() == JanitorReport()


async def test_cells_of_a_dead_worker_are_queued_again_once_their_lease_is_over(
    engine: Engine,
) -> None:
    table = await engine.table("dead", ColumnDraft(name="word"))
    row = await engine.add(table, word="a")
    draft = ColumnDraft(name="one", kind="template", template="1 {{word}}")
    await engine.columns.add(table, draft, author="test")
    await engine.reprocess(table)
    assert len(await engine.queue.claim("dead", EVERYTHING, lease_seconds=60)) == 1

    assert (await janitor(engine).tick()).reclaimed == 0
    later = Queue(engine.pool, now=datetime.now(UTC) + timedelta(seconds=61))
    assert (await janitor(engine, queue=later).tick()).reclaimed == 1

    await engine.settle(table)
    assert await engine.value(table, row, "one") == "1 a"


async def test_a_run_whose_dispatcher_died_is_signalled_to_its_end(engine: Engine) -> None:
    table = await clocked(engine)
    schema = await engine.schema(table)
    request = Request(collection_id=table, columns=[schema.ids["one"]], force=True)
    async with engine.pool.connection() as connection:
        assert await engine.dispatcher.start_run(connection, request) is not None

    assert (await janitor(engine, CREATED).tick()).resumed == 0, "it may still be alive"
    async with engine.pool.connection() as connection:
        await connection.execute("update runs set touched_at = now() - interval '1 minute'")
    assert (await janitor(engine, CREATED).tick()).resumed == 3

    await engine.settle(table)
    assert set(engine.calls().values()) == {2}


async def test_a_column_recomputes_when_its_time_comes_and_not_before(engine: Engine) -> None:
    table = await clocked(engine)

    assert (await janitor(engine, SIX - timedelta(microseconds=1)).tick()).scheduled == 0
    assert (await janitor(engine, SIX).tick()).scheduled == 3
    await engine.settle(table)

    assert engine.calls() == {"1 a": 2, "1 b": 2, "1 c": 2}


async def test_a_due_time_is_dispatched_exactly_once_by_janitors_at_the_same_moment(
    engine: Engine,
) -> None:
    table = await clocked(engine)
    janitors = [janitor(engine, SIX + timedelta(seconds=n)) for n in range(4)]

    reports = await asyncio.gather(*(one.tick() for one in janitors))
    reports += [await one.tick() for one in janitors]

    assert sorted(report.scheduled for report in reports) == [0] * 7 + [3]
    assert (await run_reasons(engine)).count("cron") == 1
    await engine.settle(table)
    assert set(engine.calls().values()) == {2}


async def test_times_that_passed_while_nothing_ran_are_made_up_for_once(engine: Engine) -> None:
    await clocked(engine, HOURLY)

    assert (await janitor(engine, SIX).tick()).scheduled == 3
    assert (await janitor(engine, SIX + timedelta(minutes=59)).tick()).scheduled == 0

    assert (await run_reasons(engine)).count("cron") == 1


async def test_an_expression_counts_from_when_it_was_given(engine: Engine) -> None:
    table = await clocked(engine, Schedule(mode="never"))
    draft = ColumnDraft(name="one", kind="test:count", template="1 {{word}}", schedule=AT_SIX)
    await engine.columns.redefine(table, "one", draft, author="test")
    async with engine.pool.connection() as connection:
        cursor = await connection.execute("select cron_ran_at from columns where name = 'one'")
        ((given_at,),) = await cursor.fetchall()

    assert (await janitor(engine, given_at).tick()).scheduled == 0
    assert (await janitor(engine, given_at + timedelta(days=1)).tick()).scheduled == 3


async def test_columns_due_together_run_together_so_that_one_waits_for_the_other(
    engine: Engine,
) -> None:
    table = await clocked(engine)
    draft = ColumnDraft(name="two", kind="test:count", template="2 {{one}}", schedule=AT_SIX)
    await engine.columns.add(table, draft, author="test")
    await engine.reprocess(table, "two")
    await engine.settle(table)
    async with engine.pool.connection() as connection:
        await connection.execute("update columns set created_at = %s", [CREATED])

    assert (await janitor(engine, SIX).tick()).scheduled == 6
    await engine.settle(table)

    assert (await run_reasons(engine)).count("cron") == 1
    assert await engine.counts(table) == {"ready": 6}


async def test_a_crash_after_a_due_time_was_taken_loses_no_run(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = await clocked(engine)

    async def die(_: object) -> int:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(engine.dispatcher, "advance", die)
        with pytest.raises(KeyboardInterrupt):
            await janitor(engine, SIX)._schedule()
    async with engine.pool.connection() as connection:
        await connection.execute("update runs set touched_at = now() - interval '1 minute'")

    report = await janitor(engine, SIX).tick()
    assert (report.scheduled, report.resumed) == (0, 3)
    await engine.settle(table)
    assert set(engine.calls().values()) == {2}


async def test_a_step_that_fails_holds_up_none_of_the_others(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    await clocked(engine)

    async def fail() -> int:
        message = "a fault"
        raise LookupError(message)

    monkeypatch.setattr(engine.queue, "retry_due", fail)
    report = await janitor(engine, SIX).tick()
    assert report == replace(JanitorReport(), scheduled=3, failed_steps=("retry",), lanes_dropped=1)


async def test_a_postgres_that_does_not_answer_fails_the_whole_tick(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def out() -> int:
        raise OUTAGES[0]

    monkeypatch.setattr(engine.queue, "retry_due", out)
    with pytest.raises(OUTAGES):
        await janitor(engine).tick()


async def test_collections_with_entries_or_with_a_run_to_signal_are_active(engine: Engine) -> None:
    tables = [
        await engine.table(name, ColumnDraft(name="word")) for name in ("idle", "queued", "running")
    ]
    columns: list[ColumnId] = []
    for table in tables:
        await engine.add(table, word="a")
        draft = ColumnDraft(name="one", kind="template", template="1 {{word}}")
        await engine.columns.add(table, draft, author="test")
        columns.append((await engine.schema(table)).ids["one"])
    _, queued, running = tables
    await engine.reprocess(queued)
    async with engine.pool.connection() as connection:
        await engine.dispatcher.start_run(connection, Request(collection_id=running))

    assert await janitor(engine).active_collections() == [queued, running]
