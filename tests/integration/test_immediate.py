"""Immediate fill: the same cells as by the queue, and the queue for whatever is not simple."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import cast

import pytest

from engine import Announced, Engine
from everfill.app import App
from everfill.autofill.columns import ColumnDraft
from everfill.autofill.dispatch import Dispatcher, Lane, Only, Request
from everfill.autofill.edits import SourceValues
from everfill.autofill.immediate import Immediate
from everfill.autofill.queue import Spent
from everfill.cli.watching import Meter, dispatch_until_settled
from everfill.compute.protocol import ComputeContext
from everfill.kernel import limits
from everfill.kernel.errors import InvalidError
from everfill.kernel.ids import CollectionId, ColumnId, RowId
from everfill.tables.schema import Schedule
from everfill.tables.types import ColumnType, TypeName
from everfill.tables.values import JsonValue

WORDS = (
    "",
    "tea",
    "7",
    "1.5",
    "1e22",
    "0.10",
    "rice\u0000",
    '\x01\x08\x0c\n\r\t\x7f"\\/\u2028',
    "ä {{ }}",
    "\ud800",
    "\ufdd0blob",
    "true",
    '{"bb": 1, "a": [1, 2.50], "a": null}',
    "[1,2]",
    "x" * 70_000,
)
TYPES = (None, None, None, None, "number", "json", "boolean", "choices", "vector")


def draft(name: str, template: str, kind: str = "template", **more: object) -> ColumnDraft:
    return ColumnDraft(name=name, kind=kind, template=template, **more)  # type: ignore[arg-type]


class Told(Announced):
    """Remembers what was told of completed cells."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[ColumnId, str]] = Counter()

    async def completed(
        self,
        collection_id: CollectionId,
        counts: Mapping[tuple[ColumnId, str], int],
        spent: Sequence[Spent],
    ) -> None:
        del collection_id, spent
        self.counts.update(counts)


def immediate(engine: Engine, told: Told | None = None) -> Dispatcher:
    """A dispatcher that fills at once, as an installation's does."""
    context = ComputeContext(settings=engine.settings, files=engine.blobs)
    filler = Immediate(blobs=engine.blobs, context=context, sink=told or Told())
    return Dispatcher(engine.pool, engine.queue, engine.blobs, Announced(), filler)


async def take(
    engine: Engine, table: CollectionId, rows: Sequence[Mapping[str, JsonValue]]
) -> None:
    """Import rows, without the run that an import ends with."""
    ids = (await engine.schema(table)).ids
    values = [
        SourceValues(key=str(place), values={ids[name]: value for name, value in row.items()})
        for place, row in enumerate(rows)
    ]
    await engine.edits.take_rows(table, values, update=False)


async def queued(engine: Engine, table: CollectionId) -> int:
    async with engine.pool.connection() as connection:
        cursor = await connection.execute(
            "select count(*) from queue where collection_id = %s", [table]
        )
        row = await cursor.fetchone()
    assert row
    return row[0]


async def stored(engine: Engine, table: CollectionId) -> list[tuple[object, ...]]:
    """Everything that is stored of the cells but times, by row and column name."""
    async with engine.pool.connection() as connection:
        cursor = await connection.execute(
            "select k.row_id, c.name, k.user_value, k.computed_value, k.status, k.locked,"
            " k.definition_version, k.computed_at is null, k.input_hash, k.reason,"
            " k.provenance - 'seconds'"
            " from cells k join columns c using (column_id)"
            " where k.collection_id = %s order by 1, 2",
            [table],
        )
        return list(await cursor.fetchall())


async def fill(dispatcher: Dispatcher, table: CollectionId) -> int:
    request = Request(collection_id=table, only=Only.UNFINISHED)
    return (await dispatcher.dispatch(request)).cells


async def test_pure_columns_of_new_rows_never_enter_the_queue(engine: Engine) -> None:
    table = await engine.table(
        "chain", ColumnDraft(name="word"), draft("one", "1 {{word}}"), draft("two", "2 {{one}}")
    )
    await take(engine, table, [{"word": "tea"}, {"word": "rice"}])
    told = Told()
    assert await fill(immediate(engine, told), table) == 4
    assert await queued(engine, table) == 0
    assert await engine.counts(table) == {"ready": 4}
    ids = (await engine.schema(table)).ids
    assert told.counts == {(ids["one"], "ready"): 2, (ids["two"], "ready"): 2}
    cells = [cell[1:5] for cell in await stored(engine, table)]
    assert cells == [
        ("one", None, "1 tea", "ready"),
        ("two", None, "2 1 tea", "ready"),
        ("word", "tea", None, "ready"),
        ("one", None, "1 rice", "ready"),
        ("two", None, "2 1 rice", "ready"),
        ("word", "rice", None, "ready"),
    ]


async def test_a_column_that_calls_something_is_queued_and_what_reads_it_waits(
    engine: Engine,
) -> None:
    table = await engine.table(
        "mixed",
        ColumnDraft(name="word"),
        draft("before", "<{{word}}>"),
        draft("called", "{{before}}!", kind="test:count"),
        draft("after", "{{before}} {{called}}"),
    )
    await take(engine, table, [{"word": "tea"}])
    assert await fill(immediate(engine), table) == 3
    assert await queued(engine, table) == 2
    assert (await engine.cell(table, RowId(1), "before")).status == "ready"
    assert (await engine.cell(table, RowId(1), "after")).status == "waiting"
    await engine.settle(table)
    assert await engine.value(table, RowId(1), "after") == "<tea> <tea>!"
    assert engine.calls() == {"<tea>!": 1}


async def test_what_is_not_simple_goes_to_the_queue_with_its_whole_row(engine: Engine) -> None:
    table = await engine.table(
        "numbers",
        ColumnDraft(name="word"),
        draft("doubled", "{{word}}{{word}}"),
        draft("number", "{{word}}", type=ColumnType(name=TypeName.NUMBER)),
    )
    await take(engine, table, [{"word": "7"}, {"word": "tea"}, {}])
    assert await fill(immediate(engine), table) == 6
    assert await queued(engine, table) == 4
    assert await engine.value(table, RowId(1), "number") == 7
    await engine.settle(table)
    assert await engine.counts(table) == {"ready": 3, "failed": 1, "waiting": 2}
    failed = await engine.cell(table, RowId(2), "number")
    assert failed.reason
    assert failed.reason["code"] == "value_invalid"


async def test_a_value_that_somebody_typed_stays(engine: Engine) -> None:
    table = await engine.table(
        "typed", ColumnDraft(name="word"), draft("one", "1 {{word}}"), draft("two", "2 {{one}}")
    )
    await take(engine, table, [{"word": "tea"}, {"word": "rice"}])
    await engine.set(table, RowId(1), "one", "mine")
    await engine.settle(table)
    await fill(immediate(engine), table)
    await engine.settle(table)
    assert await engine.value(table, RowId(1), "two") == "2 mine"
    assert await engine.value(table, RowId(2), "two") == "2 1 rice"


@pytest.mark.parametrize("only", [None, Only.OUTDATED, Only.FAILED])
async def test_a_request_for_what_is_there_goes_by_the_queue(
    engine: Engine, only: Only | None
) -> None:
    """A recompute that replaces answers, and one of what failed, are not about new rows."""
    table = await engine.table("again", ColumnDraft(name="word"), draft("one", "1 {{word}}"))
    await take(engine, table, [{"word": "tea"}])
    await fill(immediate(engine), table)
    request = Request(collection_id=table, only=only, force=True)
    assert (await immediate(engine).dispatch(request)).cells == (only is None)
    assert await queued(engine, table) == (only is None)


async def test_a_chunk_that_is_not_committed_leaves_nothing_and_is_filled_by_another(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = await engine.table("chain", ColumnDraft(name="word"), draft("one", "1 {{word}}"))
    await take(engine, table, [{"word": "tea"}])
    before = await stored(engine, table)
    dispatcher = immediate(engine)

    async def lost(*_: object, **__: object) -> int:
        raise ConnectionError("lost")

    with monkeypatch.context() as broken:
        broken.setattr(engine.queue, "signal", lost)
        with pytest.raises(ConnectionError):
            await dispatcher.dispatch(Request(collection_id=table, only=Only.UNFINISHED))
    assert await stored(engine, table) == before
    assert await dispatcher.finish_stalled(idle_seconds=-1) == 1
    assert await engine.value(table, RowId(1), "one") == "1 tea"


async def test_chunks_are_small_enough_for_edits_to_come_between(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "IMMEDIATE_CHUNK_CELLS", 4)
    table = await engine.table(
        "chain", ColumnDraft(name="word"), draft("one", "1 {{word}}"), draft("two", "2 {{one}}")
    )
    await take(engine, table, [{"word": str(place)} for place in range(9)])
    filling = asyncio.create_task(fill(immediate(engine), table))
    await engine.set(table, RowId(9), "word", "typed")
    await filling
    await engine.settle(table)
    assert await engine.counts(table) == {"ready": 18}
    assert await engine.value(table, RowId(9), "two") == "2 1 typed"
    assert await engine.value(table, RowId(8), "two") == "2 1 7"


@pytest.mark.parametrize("seed", range(16))
async def test_it_stores_what_the_queue_would_have_stored(engine: Engine, seed: int) -> None:
    chance = random.Random(seed)
    inputs, computed = ["a", "b", "c"], _columns(chance)
    rows: list[Mapping[str, JsonValue]] = [
        {name: chance.choice(WORDS) for name in inputs if chance.random() < 0.9} for _ in range(40)
    ]
    tables = {
        name: await engine.table(name, *(ColumnDraft(name=key) for key in inputs))
        for name in ("by_queue", "at_once")
    }
    for table in tables.values():
        await take(engine, table, rows)
        for column in computed:
            await engine.columns.add(table, column, author="test")
    for name, dispatcher in (("by_queue", engine.dispatcher), ("at_once", immediate(engine))):
        assert await fill(dispatcher, tables[name]) == 40 * len(computed)
    await engine.settle(*tables.values())
    assert await stored(engine, tables["at_once"]) == await stored(engine, tables["by_queue"])
    assert await fill(immediate(engine), tables["at_once"]) == await fill(
        engine.dispatcher, tables["by_queue"]
    )


def _columns(chance: random.Random) -> list[ColumnDraft]:
    """A random chain of pure and called columns of many types over a, b and c."""
    names, drafts = ["a", "b", "c"], list[ColumnDraft]()
    for place in range(6):
        read = chance.sample(names, chance.randint(1, 2))
        type_ = chance.choice(TYPES)
        called = type_ is None and chance.random() < 0.25
        drafts.append(
            draft(
                f"computed_{place}",
                "{{" + read[0] + "}}" if type_ else "-".join("{{" + key + "}}" for key in read),
                kind="test:count" if called else "template",
                type=ColumnType(name=TypeName(type_), free=type_ == "choices") if type_ else None,
                accepts_missing=chance.random() < 0.5,
                schedule=Schedule(mode=chance.choice(["on_change", "on_change", "never"])),
            )
        )
        names.append(f"computed_{place}")
    return drafts


async def test_what_postgres_writes_anew_is_read_back_before_it_is_used(engine: Engine) -> None:
    """Postgres sorts an object's keys and has its own way with numbers."""
    json = ColumnType(name=TypeName.JSON)
    table = await engine.table(
        "rewritten",
        ColumnDraft(name="word"),
        draft("object", "{{word}}", type=json),
        draft("shown", "{{object}}"),
        draft("called", "{{shown}}", kind="test:count"),
    )
    await take(engine, table, [{"word": '{"bb": 1, "a": 1e22}'}])
    await fill(immediate(engine), table)
    assert (await engine.cell(table, RowId(1), "shown")).status == "queued"
    await engine.settle(table)
    assert await engine.value(table, RowId(1), "shown") == '{"a": 10000000000000000000000, "bb": 1}'
    await engine.reprocess(table, force=False)
    await engine.settle(table)
    assert sum(engine.calls().values()) == 1


async def test_an_answer_that_reads_a_column_filled_for_the_first_time_is_outdated(
    engine: Engine,
) -> None:
    for dispatcher in (engine.dispatcher, immediate(engine)):
        table = await engine.table(
            f"by_hand_{dispatcher is engine.dispatcher}",
            ColumnDraft(name="word"),
            draft("one", "1 {{word}}"),
            draft("two", "2 {{one}}", accepts_missing=True, schedule=Schedule(mode="never")),
        )
        await take(engine, table, [{"word": "tea"}])
        await engine.reprocess(table, "two")
        await engine.settle(table)
        assert await engine.value(table, RowId(1), "two") == "2 "
        one = (await engine.schema(table)).ids["one"]
        await dispatcher.dispatch(Request(collection_id=table, columns=[one]))
        await engine.settle(table)
        assert (await engine.cell(table, RowId(1), "two")).status == "outdated"


async def test_more_text_than_is_held_at_once_goes_to_the_queue(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "IMMEDIATE_CHARS_MAX", 20)
    table = await engine.table("long", ColumnDraft(name="word"), draft("one", "{{word}}"))
    await take(engine, table, [{"word": "seven.."}] * 5)
    assert await fill(immediate(engine), table) == 5
    assert await queued(engine, table) == 3


async def test_a_column_asked_for_below_one_that_follows_is_filled_with_it(engine: Engine) -> None:
    table = await engine.table(
        "between",
        ColumnDraft(name="word"),
        draft("first", "1 {{word}}"),
        draft("follows", "2 {{first}}"),
        draft("last", "3 {{follows}}"),
    )
    await take(engine, table, [{"word": "tea"}])
    ids = (await engine.schema(table)).ids
    request = Request(collection_id=table, columns=[ids["first"], ids["last"]])
    assert (await immediate(engine).dispatch(request)).filled == 3
    assert await engine.value(table, RowId(1), "last") == "3 2 1 tea"


async def test_a_new_column_is_filled_at_once_while_others_of_its_row_are_under_way(
    engine: Engine,
) -> None:
    table = await engine.table(
        "others", ColumnDraft(name="word"), draft("called", "{{word}}", kind="test:count")
    )
    await engine.add(table, word="tea")
    assert await queued(engine, table) == 1
    one = await engine.columns.add(table, draft("one", "1 {{word}}"), author="test")
    request = Request(collection_id=table, columns=[one])
    assert (await immediate(engine).dispatch(request)).filled == 1
    assert await queued(engine, table) == 1


async def test_a_row_named_twice_is_dispatched_once(engine: Engine) -> None:
    table = await engine.table("twice", ColumnDraft(name="word"), draft("one", "1 {{word}}"))
    await take(engine, table, [{"word": "tea"}])
    for dispatcher in (immediate(engine), engine.dispatcher):
        request = Request(
            collection_id=table, rows=[RowId(1), RowId(1)], lane=Lane.BULK, force=True
        )
        assert (await dispatcher.dispatch(request)).cells == 1
        await engine.settle(table)


async def test_what_a_killed_command_left_undispatched_is_dispatched_by_the_next(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "IMMEDIATE_CHUNK_CELLS", 2)
    table = await engine.table("left", ColumnDraft(name="word"), draft("one", "1 {{word}}"))
    await take(engine, table, [{"word": "tea"}] * 5)
    dispatcher = immediate(engine)
    request = Request(collection_id=table, only=Only.UNFINISHED)
    async with engine.pool.connection() as connection:
        run_id = await dispatcher.start_run(connection, request)
    assert run_id
    assert await dispatcher.advance(run_id)
    assert not await engine.queue.is_idle(table)
    with Meter() as meter:
        dispatched = await dispatch_until_settled(
            _app(engine, dispatcher), await engine.schema(table), request, meter
        )
    assert dispatched.cells == 0
    assert await engine.queue.is_idle(table)
    assert await engine.counts(table) == {"ready": 5}


async def test_a_dispatch_that_fails_is_told_while_other_cells_are_under_way(
    engine: Engine,
) -> None:
    table = await engine.table("busy", ColumnDraft(name="word"), draft("one", "1 {{word}}"))
    await engine.add(table, word="tea")
    assert await queued(engine, table) == 1
    schema = await engine.schema(table)
    request = Request(collection_id=table, columns=[schema.ids["word"]])
    with Meter() as meter, pytest.raises(InvalidError, match="not a computed one"):
        async with asyncio.timeout(30):
            await dispatch_until_settled(_app(engine, engine.dispatcher), schema, request, meter)


def _app(engine: Engine, dispatcher: Dispatcher) -> App:
    return cast("App", SimpleNamespace(pool=engine.pool, dispatcher=dispatcher))
