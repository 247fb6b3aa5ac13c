"""Immediate fill: the same cells as by the queue, and the queue for whatever is not simple."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Mapping, Sequence

import pytest

from engine import Announced, Engine
from everfill.autofill.columns import ColumnDraft
from everfill.autofill.dispatch import Dispatcher, Only, Request
from everfill.autofill.edits import SourceValues
from everfill.autofill.immediate import Immediate
from everfill.autofill.queue import Spent
from everfill.compute.protocol import ComputeContext
from everfill.kernel import limits
from everfill.kernel.ids import CollectionId, ColumnId, RowId
from everfill.tables.schema import Schedule
from everfill.tables.types import ColumnType, TypeName
from everfill.tables.values import JsonValue

WORDS = ("", "tea", "7", "1.5", "rice\u0000", "ä {{ }}", "\ud800", "true", "x" * 70_000)


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


async def test_a_failing_kind_of_a_chunk_leaves_nothing_half_written(
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


@pytest.mark.parametrize("seed", range(12))
async def test_it_stores_what_the_queue_would_have_stored(engine: Engine, seed: int) -> None:
    chance = random.Random(seed)
    inputs, computed = ["a", "b", "c"], _columns(chance)
    rows: list[Mapping[str, JsonValue]] = [
        {name: chance.choice(WORDS) for name in inputs if chance.random() < 0.9} for _ in range(25)
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
        assert await fill(dispatcher, tables[name]) == 25 * len(computed)
    await engine.settle(*tables.values())
    assert await stored(engine, tables["at_once"]) == await stored(engine, tables["by_queue"])
    assert await fill(immediate(engine), tables["at_once"]) == await fill(
        engine.dispatcher, tables["by_queue"]
    )


def _columns(chance: random.Random) -> list[ColumnDraft]:
    """A random chain of pure and called columns over a, b and c; some of numbers."""
    names, drafts = ["a", "b", "c"], list[ColumnDraft]()
    for place in range(5):
        read = chance.sample(names, chance.randint(1, 2))
        number = chance.random() < 0.2
        drafts.append(
            draft(
                f"computed_{place}",
                "{{" + read[0] + "}}" if number else "-".join("{{" + key + "}}" for key in read),
                kind="test:count" if chance.random() < 0.2 and not number else "template",
                type=ColumnType(name=TypeName.NUMBER) if number else None,
                accepts_missing=chance.random() < 0.3,
                schedule=Schedule(mode=chance.choice(["on_change", "on_change", "never"])),
            )
        )
        names.append(f"computed_{place}")
    return drafts
