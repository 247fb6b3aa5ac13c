"""The traps of a queue in Postgres, one test each."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg
import pytest
from queue_bench import Bench, Table, signals
from statements import explain, nodes

from everfill.autofill.dispatch import Dispatched, Lane, Request
from everfill.autofill.queue import QUERIES, ClaimedCell, Outcome, OutcomeKind, Queue
from everfill.infra.postgres import open_pool
from everfill.kernel import limits
from everfill.kernel.ids import CellKey, ColumnId, LaneId
from everfill.tables.definitions import Definitions

PATIENCE_SECONDS = 60


async def until(condition: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await condition():
            await asyncio.sleep(0.005)


def claim_params(total: int) -> dict[str, Any]:
    return {
        "worker": "w",
        "lease_seconds": 60.0,
        "now": None,
        "bulk_share": limits.BULK_SHARE_OF_CAP,
        "lanes_max": limits.LANES_PER_CLAIM,
        "cost_classes": ["instant"],
        "interactive_max": [total],
        "bulk_max": [total],
        "total_max": [total],
    }


async def measured_claim(bench: Bench, total: int) -> dict[str, Any]:
    """Carry a claim out and tell what it read."""
    async with bench.pool.connection() as connection, connection.transaction():
        await connection.execute(QUERIES["lock_claims"])
        return await explain(
            connection, QUERIES["claim"], claim_params(total), options=", analyze, buffers"
        )


def blocks(plan: dict[str, Any]) -> int:
    return plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]


async def waits_for_lock(bench: Bench) -> int:
    return await bench.scalar("select count(*) from pg_locks where not granted")


async def nothing(bench: Bench, statement: str) -> bool:
    return await bench.scalar(statement) == 0


# -- order and loss -------------------------------------------------------------------------------


async def test_a_number_that_commits_late_is_not_passed_by_the_cursor(bench: Bench) -> None:
    table = await bench.make("t", rows=4)
    async with bench.pool.connection() as connection, connection.transaction():
        await bench.queue.lock(connection, table.collection_id)
        await bench.queue.signal(connection, table.collection_id, table.rows[:2], signals(table))
        second = asyncio.create_task(bench.signal(table, table.rows[2:]))
        await until(lambda: waits_for_lock(bench))
        assert await bench.claim(10) == []
    await second
    claimed = [cell.row_id for cell in await bench.claim(10)]
    assert claimed == list(table.rows)


async def test_what_is_enqueued_while_a_claim_runs_is_claimed_by_the_next(bench: Bench) -> None:
    """The cursor goes to the tail as the claim's snapshot saw it, not to the present one."""
    table = await bench.make("t", rows=6)
    await bench.signal(table, table.rows[:2])
    async with bench.pool.connection() as connection:
        async with connection.transaction():
            await connection.execute("select from lanes for update")
            claim = asyncio.create_task(bench.claim(10))
            await until(lambda: waits_for_lock(bench))
            await bench.signal(table, table.rows[2:])
        assert [cell.row_id for cell in await claim] == list(table.rows[:2])
    assert [cell.row_id for cell in await bench.claim(10)] == list(table.rows[2:])


async def test_a_number_is_only_good_in_its_own_lane(bench: Bench) -> None:
    table = await bench.make("t", rows=2)
    await bench.signal(table, table.rows[:1])
    (cell,) = await bench.claim(1)
    outcome = Outcome(cell._replace(lane_id=LaneId(999)), 1, OutcomeKind.READY, value='"wrong"')
    assert await bench.queue.finalize(table.collection_id, [outcome]) == {}
    assert await bench.scalar("select count(*) from cells where computed_value is not null") == 0
    assert await bench.land([cell]) == {CellKey(table.rows[0], table.columns[0]): "settle"}


async def test_a_repeated_finalize_changes_nothing_and_ends_no_other_claim(bench: Bench) -> None:
    table = await bench.make("t", rows=4)
    await bench.signal(table)
    cells = await bench.claim(4)
    first = [Outcome(cell, 1, OutcomeKind.READY, value='"v"') for cell in cells[:2]]
    assert len(await bench.queue.finalize(table.collection_id, first)) == 2
    assert await bench.queue.finalize(table.collection_id, first) == {}
    assert await bench.queue.finalize(table.collection_id, first) == {}
    assert await bench.scalar("select count(*) from claims") == 1
    assert len(await bench.land(cells[2:])) == 2
    assert await bench.scalar("select count(*) from claims") == 0


# -- lanes ----------------------------------------------------------------------------------------


async def test_an_edit_goes_through_between_the_chunks_of_a_bulk_run(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "DISPATCH_CHUNK_CELLS", 10)
    table = await bench.make("t", rows=30)
    request = Request(collection_id=table.collection_id, force=True)
    schema_columns = await _columns(bench, table)
    run_id = await bench.dispatcher._start_run(request, schema_columns)
    assert await bench.dispatcher.advance(run_id) == Dispatched(cells=10, run_id=run_id)
    last = table.rows[-1]
    await bench.signal(table, [last])
    first, *others = await bench.claim(11)
    assert (first.row_id, first.interactive) == (last, True)
    assert len(others) == 10
    assert await bench.dispatcher.advance(run_id) == Dispatched(cells=10, run_id=run_id)
    assert await bench.dispatcher.advance(run_id) == Dispatched(cells=10, run_id=run_id)


async def _columns(bench: Bench, table: Table) -> list[Any]:
    async with bench.pool.connection() as connection:
        schema = await Definitions(connection).load_schema(table.collection_id)
    return list(schema.computed)


async def test_a_bulk_run_does_not_pull_an_interactive_cell_down(bench: Bench) -> None:
    table = await bench.make("t", rows=3)
    await bench.signal(table, table.rows[1:2])
    await bench.bulk(table)
    cells = await bench.claim(3)
    assert [(cell.row_id, cell.interactive) for cell in cells] == [
        (table.rows[1], True),
        (table.rows[0], False),
        (table.rows[2], False),
    ]
    assert cells[0].signal == 2


async def test_an_edit_pulls_a_bulk_cell_up(bench: Bench) -> None:
    table = await bench.make("t", rows=3)
    await bench.bulk(table)
    await bench.signal(table, table.rows[2:])
    cells = await bench.claim(3)
    assert [(cell.row_id, cell.interactive) for cell in cells] == [
        (table.rows[2], True),
        (table.rows[0], False),
        (table.rows[1], False),
    ]


async def test_interactive_cells_come_first_and_bulk_keeps_its_share(bench: Bench) -> None:
    bulk = await bench.make("bulk", rows=50)
    edits = await bench.make("edits", rows=50)
    await bench.bulk(bulk)
    await bench.signal(edits)
    taken = Counter(cell.interactive for cell in await bench.claim(10, interactive=8, bulk=8))
    assert taken == {True: 8, False: 2}


async def test_a_cancelled_run_leaves_nothing_stuck_and_nobody_elses_wish_lost(
    bench: Bench,
) -> None:
    table = await bench.make("t", rows=3, templates=["{{x}}", "{{c0}}"])
    run_id = await bench.bulk(table)
    async with bench.pool.connection() as connection, connection.transaction():
        await bench.queue.lock(connection, table.collection_id)
        await bench.queue.signal(
            connection, table.collection_id, table.rows[:1], signals(table)[1:]
        )
    assert await bench.dispatcher.cancel(table.collection_id, run_id) == 5
    cells = await bench.claim(10)
    assert [(cell.row_id, cell.column_id) for cell in cells] == [(table.rows[0], table.columns[1])]


async def test_a_cancelled_run_leaves_no_answer_that_only_seems_to_be_the_newest(
    bench: Bench,
) -> None:
    table = await bench.make("t", rows=2, templates=["{{x}}", "{{c0}}"])
    await bench.signal(table)
    for _ in range(2):
        await bench.land(await bench.claim(10))
    run_id = await bench.bulk(table)
    (first,) = await bench.claim(1)
    assert await bench.dispatcher.cancel(table.collection_id, run_id) == 3
    await bench.land([first])
    statuses = "select count(*) from cells where column_id = %s and status = %s"
    assert await bench.scalar(statuses, table.columns[1], "outdated") == 1
    assert await bench.scalar(statuses, table.columns[1], "ready") == 1
    assert await bench.scalar(statuses, table.columns[0], "ready") == 2


async def test_a_paused_run_waits_and_then_goes_on(bench: Bench) -> None:
    table = await bench.make("t", rows=3)
    run_id = await bench.bulk(table)
    await bench.dispatcher.set_paused(run_id, paused=True)
    assert await bench.claim(10) == []
    await bench.dispatcher.set_paused(run_id, paused=False)
    assert len(await bench.claim(10)) == 3


async def test_a_cell_asked_for_by_hand_waits_for_an_edit_that_overtakes_it(bench: Bench) -> None:
    """A column that nothing recomputes by itself still computes from the newest when it does."""
    table = await bench.make("t", rows=1, templates=["{{x}}", "{{c0}}"])
    first, second = table.columns
    await bench.scalar(
        "update columns set schedule = 'never' where column_id = %s returning 1", second
    )
    await bench.dispatcher.dispatch(
        Request(collection_id=table.collection_id, columns=[second], rows=table.rows)
    )
    x = CellKey(table.rows[0], ColumnId(first - 1))
    await bench.edits.set_cells(table.collection_id, {x: "new"}, author="test")
    cells = await bench.claim(10)
    assert [cell.column_id for cell in cells] == [first]
    await bench.land(cells)
    assert [cell.column_id for cell in await bench.claim(10)] == [second]


async def test_what_waits_for_a_cell_that_a_person_types_over_goes_on(bench: Bench) -> None:
    table = await bench.make("t", rows=1, templates=["{{x}}", "{{c0}}"])
    first, second = table.columns
    await bench.scalar(
        "update columns set schedule = 'never' where column_id = %s returning 1", second
    )
    await bench.signal(table)
    key = CellKey(table.rows[0], first)
    await bench.edits.set_cells(table.collection_id, {key: "typed"}, author="test")
    assert [cell.column_id for cell in await bench.claim(10)] == [second]


# -- caps and fairness ----------------------------------------------------------------------------


async def test_the_cap_of_a_namespace_counts_all_its_collections_within_one_claim(
    bench: Bench,
) -> None:
    for number in range(5):
        await bench.signal(await bench.make(f"t{number}", rows=20))
    async with bench.pool.connection() as connection:
        await Definitions(connection).update_namespace("default", cap_cells=10)
    cells = await bench.claim(100)
    assert len(cells) == 10
    assert await bench.claim(100) == []
    table_id = cells[0].collection_id
    home = [Outcome(cell, 1, OutcomeKind.READY) for cell in cells if cell.collection_id == table_id]
    await bench.queue.finalize(table_id, home[:1])
    assert len(await bench.claim(100)) == 1


async def test_a_claim_takes_no_more_than_it_asked_for(bench: Bench) -> None:
    for number in range(3):
        await bench.signal(await bench.make(f"t{number}", rows=20))
        await bench.bulk(await bench.make(f"b{number}", rows=20))
    for total, interactive, bulk in ((1, 1, 1), (7, 5, 4), (20, 3, 2), (5, 0, 5), (5, 5, 0)):
        cells = await bench.claim(total, interactive=interactive, bulk=bulk)
        lanes = Counter(cell.interactive for cell in cells)
        assert len(cells) == min(total, interactive + bulk)
        assert lanes[True] <= interactive
        assert lanes[False] <= bulk


async def test_bulk_work_leaves_a_part_of_every_cap_to_edits(bench: Bench) -> None:
    table = await bench.make("t", rows=40, cap=20)
    await bench.bulk(table)
    assert len(await bench.claim(40)) == 18
    await bench.signal(table, table.rows[-5:])
    assert [cell.interactive for cell in await bench.claim(40)] == [True, True]


@pytest.mark.parametrize("weights", [(1, 1), (1, 1, 1, 2), (1, 4)])
async def test_namespaces_are_served_by_weight(bench: Bench, weights: tuple[int, ...]) -> None:
    for number, weight in enumerate(weights):
        await bench.signal(await bench.make("t", rows=900, namespace=f"n{number}"))
        async with bench.pool.connection() as connection:
            await Definitions(connection).update_namespace(f"n{number}", weight=weight)
    served: Counter[int] = Counter()
    for _ in range(60):
        cells = await bench.claim(10)
        served.update(cell.collection_id for cell in cells)
        await bench.land(cells)
    for share, weight in zip((served[key] for key in sorted(served)), weights, strict=True):
        assert share / 600 == pytest.approx(weight / sum(weights), abs=0.05)


async def test_a_collection_that_comes_late_is_served_at_once_and_gets_no_arrears(
    bench: Bench,
) -> None:
    early = await bench.make("early", rows=400)
    await bench.signal(early)
    for _ in range(20):
        await bench.land(await bench.claim(10))
    late = await bench.make("late", rows=400)
    await bench.signal(late)
    served: Counter[int] = Counter()
    for _ in range(10):
        cells = await bench.claim(10)
        served.update(cell.collection_id for cell in cells)
        await bench.land(cells)
    assert served[late.collection_id] == pytest.approx(50, abs=10)
    assert served[early.collection_id] == pytest.approx(50, abs=10)


async def test_the_two_statements_of_a_claim_are_one_transaction(bench: Bench) -> None:
    """Nothing says begin or commit: what a pipeline sends between two syncs is one transaction."""
    held = b"""
        select count(*), pg_current_xact_id() from pg_locks
        where locktype = 'advisory' and pid = pg_backend_pid()
    """
    async with bench.pool.connection() as connection:
        async with connection.pipeline():
            await connection.execute(QUERIES["lock_claims"])
            first = await connection.execute(held)
            second = await connection.execute(held)
        assert (await first.fetchone()) == (await second.fetchone())
        assert (await (await connection.execute(held)).fetchone() or (None,))[0] == 0


async def test_a_worker_that_is_cancelled_in_a_claim_leaves_no_lock_and_no_transaction_behind(
    bench: Bench,
) -> None:
    table = await bench.make("t", rows=4)
    await bench.signal(table)
    for _ in range(20):
        async with bench.pool.connection() as connection:
            async with connection.transaction():
                await connection.execute(QUERIES["lock_claims"])
                claim = asyncio.create_task(bench.claim(10))
                await until(lambda: waits_for_lock(bench))
                claim.cancel()
            with pytest.raises(asyncio.CancelledError):
                await claim
    open_ones = "select count(*) from pg_stat_activity where xact_start < now()"
    await until(lambda: nothing(bench, "select count(*) from pg_locks where locktype = 'advisory'"))
    await until(lambda: nothing(bench, f"{open_ones} and datname = current_database()"))


async def test_caps_hold_at_every_sample_while_many_claim_at_once(
    bench: Bench, database_url: str
) -> None:
    tables = [await bench.make(f"t{number}", rows=150, cap=20) for number in range(4)]
    for table in tables:
        await bench.signal(table)
    async with bench.pool.connection() as connection:
        await Definitions(connection).update_namespace("default", cap_cells=45)
    samples: list[tuple[int, int]] = []
    left = 600

    async def work(worker: Bench, seed: int) -> None:
        nonlocal left
        chance = random.Random(seed)
        while left:
            cells = await worker.claim(chance.randint(1, 40))
            await asyncio.sleep(0)
            landed = await worker.land(cells)
            left -= len(landed)

    async def sample() -> None:
        async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as own:
            await own.execute("set search_path = everfill")
            while left:
                cursor = await own.execute(
                    "select coalesce(sum(n), 0), coalesce(max(n), 0) from ("
                    "select sum(n) as n from claims group by collection_id) c"
                )
                samples.extend(await cursor.fetchall())

    async with open_pool(database_url, size_max=6) as pool:
        worker = Bench(pool, Queue(pool))
        await asyncio.gather(sample(), *(work(worker, seed) for seed in range(5)))
    assert max(total for total, _ in samples) <= 45
    assert max(most for _, most in samples) <= 20


@pytest.mark.parametrize("event", ["gone", "overridden", "locked", "redefined", "expired"])
async def test_a_claim_whose_cell_changed_lets_go_of_its_part_of_the_cap(
    bench: Bench, event: str
) -> None:
    table = await bench.make("t", rows=2, cap=2)
    await bench.signal(table)
    cells = await bench.claim(2)
    key = CellKey(table.rows[0], table.columns[0])
    if event == "gone":
        await bench.edits.delete_rows(table.collection_id, [table.rows[0]], author="test")
    elif event == "overridden":
        await bench.edits.set_cells(table.collection_id, {key: "typed"}, author="test")
    elif event == "locked":
        await bench.edits.lock_cells(table.collection_id, [key], locked=True, author="test")
    elif event == "redefined":
        await bench.scalar(
            "update columns set definition_version = 2 where column_id = %s returning 1",
            table.columns[0],
        )
    else:
        await bench.scalar("update claims set lease_until = now() - interval '1s' returning 1")
        await bench.queue.reclaim()
    await bench.land(cells)
    assert await bench.scalar("select count(*) from claims") == 0
    if event in {"redefined", "expired"}:
        assert len(await bench.claim(2)) == 2


# -- cost -----------------------------------------------------------------------------------------


async def test_a_claim_reads_no_more_while_a_snapshot_is_held(
    bench: Bench, database_url: str
) -> None:
    table = await bench.make("t", rows=3_000)
    await bench.signal(table)
    await bench.scalar("select count(*) from queue")
    async with await psycopg.AsyncConnection.connect(database_url) as report:
        await report.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
        await report.execute("select count(*) from everfill.queue")
        early = blocks(await measured_claim(bench, 50))
        for _ in range(25):
            await bench.land(await bench.claim(100))
        late = blocks(await measured_claim(bench, 50))
        await report.rollback()
    assert late <= early * 1.5 + 100


async def test_a_hundred_thousand_idle_collections_cost_a_claim_nothing(bench: Bench) -> None:
    for number in range(50):
        await bench.signal(await bench.make(f"t{number}", rows=2))
    few = await measured_claim(bench, 10)
    await bench.scalar(
        "with made as (insert into collections (namespace_id, name, cap_cells)"
        " select 1, 'idle' || g, 100 from generate_series(1, 100000) g returning 1)"
        " select count(*) from made"
    )
    async with bench.pool.connection() as connection:
        await connection.execute("analyze")
    many = await measured_claim(bench, 10)
    assert blocks(many) <= blocks(few) * 2 + 200
    for node in nodes(many):
        assert node["Actual Rows"] * node["Actual Loops"] <= 2_000, node["Node Type"]


async def test_a_lane_without_work_leaves_the_table(bench: Bench) -> None:
    table = await bench.make("t", rows=2)
    await bench.signal(table)
    await bench.land(await bench.claim(2))
    assert await bench.scalar("select count(*) from lanes") == 1
    await bench.queue.heal()
    assert await bench.scalar("select count(*) from lanes") == 0
    await bench.signal(table)
    assert len(await bench.claim(2)) == 2


async def test_finalize_updates_cells_without_touching_an_index(bench: Bench) -> None:
    table = await bench.make("t", rows=300)
    await bench.signal(table)
    await bench.land(await bench.claim(300))
    await bench.signal(table, table.rows[::15])  # as many to a page as its free part holds
    await bench.land(await bench.claim(20))
    await until(lambda: _updates(bench, "n_tup_upd"))
    assert await _updates(bench, "n_tup_hot_upd") == await _updates(bench, "n_tup_upd")
    assert await bench.scalar("select count(*) from pg_indexes where tablename = 'cells'") == 1


async def _updates(bench: Bench, counter: str) -> int:
    async with bench.pool.connection() as connection:
        await connection.execute("select pg_stat_force_next_flush()")
        await connection.execute("select 1")
    return await bench.scalar(
        "select (to_jsonb(s) ->> %s)::int from pg_stat_user_tables s where relname = 'cells'",
        counter,
    )


async def test_the_hot_tables_bring_their_own_vacuum_settings(bench: Bench) -> None:
    found = await bench.scalar(
        "select count(*) from pg_class where relname in"
        " ('cells', 'queue', 'lanes', 'lane_tails', 'lane_clocks', 'claims')"
        " and array_to_string(reloptions, ',') like '%autovacuum%'"
        " and array_to_string(reloptions, ',') like '%fillfactor%'"
    )
    assert found == 6


async def test_a_run_that_names_its_rows_reads_no_others(bench: Bench) -> None:
    table = await bench.make("t", rows=2_000)
    rows = [*table.rows[:3], *table.rows[-3:]]
    done = await bench.dispatcher.dispatch(
        Request(collection_id=table.collection_id, rows=rows, lane=Lane.BULK)
    )
    assert done.cells == 6
    assert [cell.row_id for cell in await bench.claim(100)] == rows


# -- waking ---------------------------------------------------------------------------------------


async def test_idle_workers_are_woken_once_a_transaction_and_only_where_a_lane_was_empty(
    bench: Bench, database_url: str
) -> None:
    tables = [await bench.make(f"t{number}", rows=3) for number in range(3)]
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as ear:
        await ear.execute("listen everfill_queue")
        async with bench.pool.connection() as connection, connection.transaction():
            for table in tables:
                await bench.queue.lock(connection, table.collection_id)
                for row in table.rows[:2]:
                    await bench.queue.signal(connection, table.collection_id, [row], signals(table))
        await bench.signal(tables[0], tables[0].rows[2:])
        async with bench.pool.connection() as connection:
            await connection.execute("select pg_notify('everfill_queue', 'last')")
        heard = []
        async for note in ear.notifies(timeout=PATIENCE_SECONDS):
            heard.append(note.payload)
            if note.payload == "last":
                break
    assert heard == ["", "last"]


# -- locks ----------------------------------------------------------------------------------------


async def test_a_claim_never_waits_for_a_writer(bench: Bench) -> None:
    table = await bench.make("t", rows=4)
    await bench.signal(table, table.rows[:2])
    async with bench.pool.connection() as connection, connection.transaction():
        await bench.queue.lock(connection, table.collection_id)
        await bench.queue.signal(connection, table.collection_id, table.rows, signals(table))
        async with asyncio.timeout(PATIENCE_SECONDS):
            cells = await bench.claim(10)
    assert [cell.row_id for cell in cells] == list(table.rows[:2])
    verdicts = await bench.land(cells)
    assert set(verdicts.values()) == {"again"}, "a signal that raced with the claim is not lost"


async def test_renewals_finalizes_and_reclaims_of_the_same_claims_never_deadlock(
    bench: Bench, database_url: str
) -> None:
    tables = [
        await bench.make(f"t{number}", rows=40, templates=["{{x}}", "{{c0}}"])
        for number in range(2)
    ]
    async with open_pool(database_url, size_max=8) as pool:
        crowd = Bench(pool, Queue(pool))
        await asyncio.gather(*(_act(crowd, tables, seed) for seed in range(6)))
        for table in tables:
            await crowd.signal(table)
        await _drain(crowd)
    for table in tables:
        assert await bench.queue.is_idle(table.collection_id)
    assert (
        await bench.scalar(
            "select deadlocks from pg_stat_database where datname = current_database()"
        )
        == 0
    )


async def _act(bench: Bench, tables: list[Table], seed: int) -> None:
    """A hundred random steps of a worker, a dispatcher and a janitor."""
    chance = random.Random(seed)
    held: list[ClaimedCell] = []
    runs = []
    for _ in range(100):
        table = chance.choice(tables)
        match chance.randrange(10):
            case 0 | 1 | 2:
                held += await bench.claim(chance.randint(1, 15))
            case 3 | 4:
                chance.shuffle(held)
                part, held = held[: len(held) // 2 + 1], held[len(held) // 2 + 1 :]
                await _land_part(bench, part, held)
            case 5:
                claims = [cell.claim_id for cell in held]
                chance.shuffle(claims)
                await bench.queue.renew(claims, lease_seconds=chance.choice([-1, 60]))
            case 6:
                await bench.signal(table, sorted(chance.sample(list(table.rows), 5)))
            case 7:
                await bench.queue.reclaim()
                await bench.queue.heal()
            case 8:
                runs.append((table, await bench.bulk(table)))
            case _ if runs:
                table, run_id = runs.pop()
                await bench.dispatcher.set_paused(run_id, paused=True)
                await bench.dispatcher.cancel(table.collection_id, run_id)
            case _:
                await bench.queue.give_back_all([cell.claim_id for cell in held])
                held = []
    await bench.queue.give_back_all([cell.claim_id for cell in held])


async def _land_part(bench: Bench, part: list[ClaimedCell], left: list[ClaimedCell]) -> None:
    out = {cell.claim_id for cell in left}
    for table in {cell.collection_id for cell in part}:
        own = {(cell.row_id, cell.column_id): cell for cell in part if cell.collection_id == table}
        ended = sorted({cell.claim_id for cell in own.values()} - out)
        outcomes = [Outcome(cell, 1, OutcomeKind.READY, value='"v"') for cell in own.values()]
        await bench.queue.finalize(table, outcomes, ended=ended)


async def _drain(bench: Bench) -> None:
    await bench.scalar(
        "with u as (update claims set lease_until = '-infinity' returning 1) select count(*) from u"
    )
    await bench.queue.reclaim()
    await bench.queue.heal()
    while cells := await bench.claim(500) or await bench.claim(500) or await bench.claim(500):
        await bench.land(cells)


async def test_health_tells_what_an_operator_should_know(bench: Bench) -> None:
    table = await bench.make("t", rows=5)
    await bench.signal(table)
    await bench.claim(2)
    health = await bench.queue.health()
    assert (health.entries, health.claims, health.expired_claims) == (5, 1, 0)
    await bench.scalar("update claims set lease_until = now() - interval '1s' returning 1")
    assert (await bench.queue.health()).expired_claims == 1
