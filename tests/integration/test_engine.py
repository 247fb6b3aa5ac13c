"""The contract with the user: what cells say and hold after edits, runs and failures."""

from __future__ import annotations

import asyncio

import pytest

from engine import Engine
from everfill.autofill.columns import ColumnDraft
from everfill.autofill.dispatch import Only, Request
from everfill.kernel.errors import ConflictError, InvalidError
from everfill.kernel.ids import CollectionId
from everfill.tables.cells import CellStatus
from everfill.tables.definitions import Definitions
from everfill.tables.schema import Schedule
from everfill.tables.types import ColumnType, TypeName
from everfill.tables.values import MISSING


def count(name: str, template: str, **more: object) -> ColumnDraft:
    return ColumnDraft(name=name, kind="test:count", template=template, **more)  # type: ignore[arg-type]


async def chain(engine: Engine) -> CollectionId:
    """word -> one -> two."""
    return await engine.table(
        "chain",
        ColumnDraft(name="word"),
        count("one", "1 {{word}}"),
        count("two", "2 {{one}}"),
    )


async def test_a_new_row_is_filled_through_the_chain(engine: Engine) -> None:
    table = await chain(engine)
    row = await engine.add(table, word="tea")
    await engine.settle(table)
    assert await engine.value(table, row, "two") == "2 1 tea"
    assert (await engine.cell(table, row, "two")).status is CellStatus.READY


async def test_an_edit_recomputes_what_depends_on_it(engine: Engine) -> None:
    table = await chain(engine)
    row = await engine.add(table, word="tea")
    await engine.settle(table)
    await engine.set(table, row, "word", "rice")
    assert (await engine.cell(table, row, "one")).status is CellStatus.QUEUED
    waiting = await engine.cell(table, row, "two")
    assert (waiting.status, waiting.reason) == (
        CellStatus.WAITING,
        {"code": "upstream_unsettled"},
    )
    await engine.settle(table)
    assert await engine.value(table, row, "two") == "2 1 rice"


async def test_a_diamond_computes_its_end_once_with_both_new_sides(engine: Engine) -> None:
    table = await engine.table(
        "diamond",
        ColumnDraft(name="a"),
        count("left", "l{{a}}"),
        count("right", "r{{a}}"),
        count("end", "{{left}}+{{right}}"),
    )
    row = await engine.add(table, a="1")
    await engine.settle(table)
    await engine.set(table, row, "a", "2")
    await engine.settle(table)
    assert await engine.value(table, row, "end") == "l2+r2"
    ends = {text: n for text, n in engine.calls().items() if "+" in text}
    assert ends == {"l1+r1": 1, "l2+r2": 1}


async def test_a_typed_value_wins_and_feeds_dependents_and_reset_pays_nothing(
    engine: Engine,
) -> None:
    table = await chain(engine)
    row = await engine.add(table, word="tea")
    await engine.settle(table)
    await engine.set(table, row, "one", "mine")
    await engine.settle(table)
    cell = await engine.cell(table, row, "one")
    assert (cell.value, cell.computed_value) == ("mine", "1 tea")
    assert await engine.value(table, row, "two") == "2 mine"
    before = engine.calls()
    await engine.reset(table, row, "one")
    await engine.settle(table)
    assert await engine.value(table, row, "one") == "1 tea"
    assert await engine.value(table, row, "two") == "2 1 tea"
    after = engine.calls()
    assert after["1 tea"] == before["1 tea"] == 1


async def test_an_override_survives_upstream_changes_and_its_hidden_value_is_outdated(
    engine: Engine,
) -> None:
    table = await chain(engine)
    row = await engine.add(table, word="tea")
    await engine.settle(table)
    await engine.set(table, row, "one", "mine")
    await engine.settle(table)
    await engine.set(table, row, "word", "rice")
    await engine.settle(table)
    cell = await engine.cell(table, row, "one")
    assert (cell.value, cell.computed_value) == ("mine", "1 tea")
    assert cell.reason == {"code": "input_changed"}
    assert engine.calls()["1 rice"] == 0
    await engine.reset(table, row, "one")
    await engine.settle(table)
    assert await engine.value(table, row, "two") == "2 1 rice"


async def test_reprocess_computes_anew_and_an_equal_value_stops_there(engine: Engine) -> None:
    table = await chain(engine)
    row = await engine.add(table, word="tea")
    await engine.settle(table)
    await engine.reprocess(table, "one")
    await engine.settle(table)
    assert engine.calls() == {"1 tea": 2, "2 1 tea": 1}
    cell = await engine.cell(table, row, "two")
    assert (cell.value, cell.status) == ("2 1 tea", CellStatus.READY)


async def test_setting_the_same_value_again_costs_nothing(engine: Engine) -> None:
    table = await chain(engine)
    row = await engine.add(table, word="tea")
    await engine.settle(table)
    assert await engine.set(table, row, "word", "tea") == 0
    assert (await engine.cell(table, row, "one")).status is CellStatus.READY


async def test_ten_quick_edits_cost_one_call(engine: Engine) -> None:
    table = await chain(engine)
    row = await engine.add(table, word="0")
    for n in range(1, 11):
        await engine.set(table, row, "word", str(n))
    await engine.settle(table)
    assert await engine.value(table, row, "two") == "2 1 10"
    assert engine.calls() == {"1 10": 1, "2 1 10": 1}


async def test_a_missing_input_makes_its_dependents_wait_and_say_for_what(engine: Engine) -> None:
    table = await chain(engine)
    row = await engine.add(table)
    await engine.settle(table)
    one, two = await engine.cell(table, row, "one"), await engine.cell(table, row, "two")
    assert (one.status, one.reason) == (
        CellStatus.WAITING,
        {"code": "input_missing", "column": "word"},
    )
    assert (two.status, two.reason) == (
        CellStatus.WAITING,
        {"code": "upstream_waiting", "column": "one"},
    )
    assert engine.calls() == {}
    await engine.set(table, row, "word", "late")
    await engine.settle(table)
    assert await engine.value(table, row, "two") == "2 1 late"


async def test_the_empty_string_is_a_value_and_null_is_none(engine: Engine) -> None:
    table = await chain(engine)
    empty, null = await engine.add(table, word=""), await engine.add(table, word=None)
    await engine.settle(table)
    assert await engine.value(table, empty, "one") == "1 "
    assert (await engine.cell(table, null, "one")).status is CellStatus.WAITING
    assert (await engine.cell(table, empty, "word")).value == ""
    assert (await engine.cell(table, null, "word")).value is None
    untouched = await engine.add(table)
    assert (await engine.cell(table, untouched, "word")).value is MISSING


async def test_a_column_that_accepts_missing_inputs_runs_without_them(engine: Engine) -> None:
    table = await engine.table(
        "lenient",
        ColumnDraft(name="word"),
        count("greeting", "Hello {{word}}!", accepts_missing=True),
    )
    row = await engine.add(table)
    await engine.settle(table)
    assert await engine.value(table, row, "greeting") == "Hello !"


async def test_a_failed_upstream_is_told_and_not_computed_upon(engine: Engine) -> None:
    number = ColumnType(name=TypeName.NUMBER)
    table = await engine.table(
        "failing",
        ColumnDraft(name="word"),
        ColumnDraft(name="amount", type=number, kind="template", template="{{word}}"),
        count("after", "{{amount}}"),
    )
    bad, good = await engine.add(table, word="many"), await engine.add(table, word="12.50")
    await engine.settle(table)
    failed = await engine.cell(table, bad, "amount")
    assert failed.status is CellStatus.FAILED
    assert failed.reason
    assert failed.reason["code"] == "value_invalid"
    after = await engine.cell(table, bad, "after")
    assert after.reason == {"code": "upstream_failed", "column": "amount"}
    assert await engine.value(table, good, "amount") == 12.5
    assert engine.calls() == {"12.5": 1}
    await engine.set(table, bad, "word", "7")
    await engine.settle(table)
    assert await engine.value(table, bad, "after") == "7"


async def test_a_transient_failure_is_retried_until_it_succeeds(engine: Engine) -> None:
    table = await engine.table(
        "flaky",
        ColumnDraft(name="word"),
        ColumnDraft(name="answer", kind="test:flaky", template="{{word}}", options={"failures": 1}),
    )
    row = await engine.add(table, word="tea")
    await engine.settle(table)
    assert await engine.value(table, row, "answer") == "tea"


async def test_a_signal_during_a_call_makes_it_go_round_again(engine: Engine) -> None:
    table = await engine.table(
        "slow",
        ColumnDraft(name="word"),
        ColumnDraft(name="out", kind="test:slow", template="{{word}}", options={"seconds": 0.3}),
    )
    row = await engine.add(table, word="old")
    worker = engine.worker()
    running = asyncio.create_task(worker.run())
    while (await engine.cell(table, row, "out")).status is not CellStatus.COMPUTING:
        await asyncio.sleep(0.005)
    await engine.set(table, row, "word", "new")
    assert (await engine.cell(table, row, "out")).status is CellStatus.COMPUTING
    while not await engine.queue.is_idle(table):
        await asyncio.sleep(0.01)
    worker.stop()
    await running
    cell = await engine.cell(table, row, "out")
    assert (cell.value, cell.status) == ("new", CellStatus.READY)
    assert engine.calls() == {"old": 1, "new": 1}


async def test_a_changed_definition_outdates_values_and_a_reprocess_brings_them_up(
    engine: Engine,
) -> None:
    table = await chain(engine)
    row = await engine.add(table, word="tea")
    await engine.settle(table)
    await engine.columns.redefine(table, "one", count("one", "one {{word}}"), author="test")
    cell = await engine.cell(table, row, "one")
    assert (cell.value, cell.status, cell.reason) == (
        "1 tea",
        CellStatus.OUTDATED,
        {"code": "definition_changed"},
    )
    assert await engine.reprocess(table, "one", only=Only.OUTDATED, force=False) == 2
    await engine.settle(table)
    assert await engine.value(table, row, "two") == "2 one tea"


async def test_a_failure_of_an_old_definition_is_outdated_too(engine: Engine) -> None:
    number = ColumnType(name=TypeName.NUMBER)
    amount = ColumnDraft(name="amount", type=number, kind="template", template="{{word}} x")
    table = await engine.table("old", ColumnDraft(name="word"), amount)
    row = await engine.add(table, word="7")
    await engine.settle(table)
    assert (await engine.cell(table, row, "amount")).status is CellStatus.FAILED
    better = ColumnDraft(name="amount", type=number, kind="template", template="{{word}}")
    await engine.columns.redefine(table, "amount", better, author="test")
    cell = await engine.cell(table, row, "amount")
    assert (cell.value, cell.status, cell.reason) == (
        MISSING,
        CellStatus.OUTDATED,
        {"code": "definition_changed"},
    )
    assert await engine.counts(table) == {"outdated": 1}
    assert await engine.reprocess(table, only=Only.OUTDATED, force=False) == 1
    await engine.settle(table)
    assert await engine.value(table, row, "amount") == 7


async def test_a_result_of_an_old_definition_cannot_land(engine: Engine) -> None:
    slow = ColumnDraft(
        name="out", kind="test:slow", template="old {{word}}", options={"seconds": 0.3}
    )
    table = await engine.table("barrier", ColumnDraft(name="word"), slow)
    row = await engine.add(table, word="tea")
    worker = engine.worker()
    running = asyncio.create_task(worker.run())
    while (await engine.cell(table, row, "out")).status is not CellStatus.COMPUTING:
        await asyncio.sleep(0.005)
    await engine.columns.redefine(table, "out", count("out", "new {{word}}"), author="test")
    while not await engine.queue.is_idle(table):
        await asyncio.sleep(0.01)
    worker.stop()
    await running
    cell = await engine.cell(table, row, "out")
    assert (cell.value, cell.status) == ("new tea", CellStatus.READY)


async def test_a_locked_cell_is_left_alone_and_catches_up_when_unlocked(engine: Engine) -> None:
    table = await chain(engine)
    row = await engine.add(table, word="tea")
    await engine.settle(table)
    key = await engine.key(table, row, "one")
    await engine.edits.lock_cells(table, [key], locked=True, author="test")
    await engine.set(table, row, "word", "rice")
    await engine.settle(table)
    cell = await engine.cell(table, row, "one")
    assert (cell.value, cell.status, cell.locked) == ("1 tea", CellStatus.OUTDATED, True)
    await engine.edits.lock_cells(table, [key], locked=False, author="test")
    await engine.settle(table)
    assert await engine.value(table, row, "two") == "2 1 rice"


async def test_a_column_computed_by_hand_is_only_marked_outdated(engine: Engine) -> None:
    table = await engine.table(
        "manual",
        ColumnDraft(name="word"),
        count("one", "1 {{word}}", schedule=Schedule(mode="never")),
        count("two", "2 {{one}}"),
    )
    row = await engine.add(table, word="tea")
    await engine.settle(table)
    assert (await engine.cell(table, row, "one")).status is CellStatus.EMPTY
    await engine.reprocess(table, "one")
    await engine.settle(table)
    assert await engine.value(table, row, "two") == "2 1 tea"
    await engine.set(table, row, "word", "rice")
    await engine.settle(table)
    one = await engine.cell(table, row, "one")
    assert (one.value, one.status) == ("1 tea", CellStatus.OUTDATED)


async def test_a_reprocess_outdates_what_is_computed_by_hand_only_where_the_value_changed(
    engine: Engine,
) -> None:
    table = await engine.table(
        "by-hand",
        ColumnDraft(name="word"),
        count("one", "1 {{word}}"),
        count("two", "2 {{one}}", schedule=Schedule(mode="never")),
    )
    row = await engine.add(table, word="tea")
    await engine.settle(table)
    await engine.reprocess(table, "two")
    await engine.settle(table)
    await engine.reprocess(table, "one")
    await engine.settle(table)
    assert (await engine.cell(table, row, "two")).status is CellStatus.READY
    await engine.columns.redefine(table, "one", count("one", "uno {{word}}"), author="test")
    await engine.reprocess(table, "one")
    await engine.settle(table)
    two = await engine.cell(table, row, "two")
    assert (two.value, two.status) == ("2 1 tea", CellStatus.OUTDATED)


async def test_a_renamed_column_breaks_no_template(engine: Engine) -> None:
    table = await chain(engine)
    row = await engine.add(table, word="tea")
    await engine.columns.rename(table, "word", "drink", author="test")
    await engine.settle(table)
    assert await engine.value(table, row, "two") == "2 1 tea"
    schema = await engine.schema(table)
    assert schema.template_of(schema.get("one")) == "1 {{drink}}"


async def test_dropping_a_column_in_use_is_refused_with_its_dependents(engine: Engine) -> None:
    table = await chain(engine)
    with pytest.raises(ConflictError, match="one read it") as caught:
        await engine.columns.drop(table, "word", cascade=False, author="test")
    assert caught.value.code == "column_in_use"
    dropped = await engine.columns.drop(table, "word", cascade=True, author="test")
    assert [column.name for column in dropped] == ["word", "one", "two"]


async def test_a_circle_is_refused_with_its_path(engine: Engine) -> None:
    table = await chain(engine)
    with pytest.raises(InvalidError, match="one -> two -> one|two -> one -> two"):
        await engine.columns.redefine(table, "one", count("one", "{{two}}"), author="test")


@pytest.mark.parametrize(
    ("draft", "code"),
    [
        (count("bad", "{{nope}}"), "column_unknown"),
        (count("bad", "{{word"), "template_unclosed"),
        (count("bad", " "), "template_missing"),
        (
            count("bad", "{{word}}", schedule=Schedule(mode="cron", cron="99 * * * *")),
            "cron_invalid",
        ),
        (ColumnDraft(name="bad", kind="nothing", template="{{word}}"), "kind_unknown"),
        (ColumnDraft(name=" bad"), "name_invalid"),
    ],
)
async def test_an_invalid_definition_is_refused_when_it_is_made(
    engine: Engine, draft: ColumnDraft, code: str
) -> None:
    table = await engine.table("strict", ColumnDraft(name="word"))
    with pytest.raises(InvalidError) as caught:
        await engine.columns.add(table, draft, author="test")
    assert caught.value.code == code
    assert len((await engine.schema(table)).columns) == 1


async def test_a_copy_reads_itself_and_keeps_what_was_paid_for(engine: Engine) -> None:
    table = await chain(engine)
    row = await engine.add(table, word="tea")
    await engine.settle(table)
    async with engine.pool.connection() as connection, connection.transaction():
        definitions = Definitions(connection)
        source = await definitions.get_collection("default", "chain")
        copy = await definitions.duplicate(source, "copy")
    assert await engine.value(copy.collection_id, row, "two") == "2 1 tea"
    await engine.reprocess(copy.collection_id, force=False)
    await engine.settle(copy.collection_id)
    assert engine.calls() == {"1 tea": 1, "2 1 tea": 1}
    await engine.set(copy.collection_id, row, "word", "rice")
    await engine.settle(copy.collection_id)
    assert await engine.value(copy.collection_id, row, "two") == "2 1 rice"
    assert await engine.value(table, row, "two") == "2 1 tea"


async def test_a_deleted_row_takes_a_running_call_with_it(engine: Engine) -> None:
    table = await engine.table(
        "gone",
        ColumnDraft(name="word"),
        ColumnDraft(name="out", kind="test:slow", template="{{word}}", options={"seconds": 0.2}),
    )
    row, other = await engine.add(table, word="a"), await engine.add(table, word="b")
    worker = engine.worker()
    running = asyncio.create_task(worker.run())
    while (await engine.cell(table, row, "out")).status is not CellStatus.COMPUTING:
        await asyncio.sleep(0.005)
    await engine.edits.delete_rows(table, [row], author="test")
    while not await engine.queue.is_idle(table):
        await asyncio.sleep(0.01)
    worker.stop()
    await running
    assert (await engine.cell(table, row, "out")).value is MISSING
    assert await engine.value(table, other, "out") == "b"


async def test_a_large_value_and_a_nul_go_through_whole(engine: Engine) -> None:
    table = await engine.table("large", ColumnDraft(name="word"), count("out", "{{word}}"))
    text = "é" * 700_000 + "\0end"
    row = await engine.add(table, word=text)
    await engine.settle(table)
    assert await engine.value(table, row, "out") == text


async def test_a_lost_blob_fails_the_cells_that_read_it_and_says_so(engine: Engine) -> None:
    table = await engine.table("lost", ColumnDraft(name="word"), count("out", "{{word}}"))
    row, small = await engine.add(table, word="x" * 1_500_000), await engine.add(table, word="s")
    blobs = engine.blobs._store
    for entry in [item["path"] for batch in blobs.list() for item in batch]:
        blobs.delete(entry)
    await engine.settle(table)
    async with engine.pool.connection() as connection:
        cursor = await connection.execute(
            "select status::text, reason ->> 'code' from cells"
            " where row_id = %s and column_id = %s",
            [row, (await engine.schema(table)).ids["out"]],
        )
        assert await cursor.fetchone() == ("failed", "blob_missing")
    assert await engine.value(table, small, "out") == "s"


async def test_a_bulk_run_covers_every_row_in_chunks(engine: Engine) -> None:
    table = await engine.table("bulk", ColumnDraft(name="word"))
    schema = await engine.schema(table)
    rows = [{schema.ids["word"]: str(n)} for n in range(6_000)]
    await engine.edits.append_rows(table, rows, author="test")
    await engine.columns.add(table, count("one", "1 {{word}}"), author="test")
    dispatched = await engine.dispatcher.dispatch(Request(collection_id=table))
    assert dispatched.cells == 6_000
    await engine.settle(table)
    assert set(engine.calls()) == {f"1 {n}" for n in range(6_000)}
    assert set(engine.calls().values()) == {1}


async def test_a_stopped_worker_gives_back_what_it_holds(engine: Engine) -> None:
    table = await engine.table(
        "stop",
        ColumnDraft(name="word"),
        ColumnDraft(name="out", kind="test:slow", template="{{word}}", options={"seconds": 30}),
    )
    row = await engine.add(table, word="a")
    worker = engine.worker(drain_seconds=0)
    running = asyncio.create_task(worker.run())
    while (await engine.cell(table, row, "out")).status is not CellStatus.COMPUTING:
        await asyncio.sleep(0.005)
    worker.stop()
    await running
    assert (await engine.cell(table, row, "out")).status is CellStatus.QUEUED
