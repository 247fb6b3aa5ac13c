"""Tables as several people, or somebody hostile, use them at once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from engine import Engine
from everfill.autofill.columns import ColumnDraft
from everfill.autofill.intake import Intake
from everfill.infra.postgres import Pool
from everfill.kernel import limits
from everfill.kernel.errors import ConflictError, InvalidError, NotFoundError
from everfill.kernel.ids import RowId
from everfill.tables.definitions import Definitions
from everfill.tables.imports import open_source
from everfill.tables.types import TEXT


async def test_a_collection_that_many_make_at_once_is_made_once(engine: Engine, pool: Pool) -> None:
    intake = Intake(pool, engine.edits, engine.columns)
    made = await asyncio.gather(
        *(intake.ensure_collection("fresh", "table", cap_cells=10) for _ in range(8))
    )
    assert len({item.collection_id for item in made}) == 1


@pytest.mark.parametrize("also_cut_first", [False, True])
async def test_an_update_that_was_cut_off_leaves_no_row_of_it_behind(
    engine: Engine,
    pool: Pool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    also_cut_first: bool,
) -> None:
    monkeypatch.setattr(limits, "IMPORT_CHUNK_ROWS", 2)
    intake = Intake(pool, engine.edits, engine.columns)
    file = tmp_path / "words.csv"

    async def take(name: str, *, cut: bool = False) -> None:
        def on_rows(_: int) -> None:
            if cut:
                raise InterruptedError

        file.write_text("word\n" + "".join(f"{name}{n}\n" for n in range(6)))
        collection = await intake.ensure_collection("default", "words", cap_cells=10)
        source = open_source(file, on_bad_row="stop", files=engine.blobs)
        if not cut:
            await intake.take(collection, file, source, author="test", on_rows=on_rows)
            return
        with pytest.raises(InterruptedError):
            await intake.take(collection, file, source, author="test", on_rows=on_rows)

    await take("a", cut=also_cut_first)
    await take("b", cut=True)
    await take("a")
    collection_id = (await intake.ensure_collection("default", "words", cap_cells=10)).collection_id
    words = [await engine.value(collection_id, RowId(n), "word") for n in range(1, 7)]
    assert words == ["a0", "a1", "a2", "a3", "a4", "a5"]


async def test_input_columns_are_added_all_or_none(engine: Engine) -> None:
    table = await engine.table("wide", ColumnDraft(name="a"))
    types = {f"c{number}": TEXT for number in range(limits.COLUMNS_MAX)}
    with pytest.raises(InvalidError) as caught:
        await engine.columns.add_inputs(table, types, author="test")
    assert caught.value.code == "columns_too_many"
    assert [column.name for column in (await engine.schema(table)).columns] == ["a"]
    ids = await engine.columns.add_inputs(table, {"b": TEXT, "a": TEXT}, author="test")
    schema = await engine.schema(table)
    assert [column.name for column in schema.columns] == ["a", "b"]
    assert ids == schema.ids


async def test_an_input_column_that_is_computed_is_refused(engine: Engine) -> None:
    computed = ColumnDraft(name="b", kind="template", template="{{a}}")
    table = await engine.table("computed", ColumnDraft(name="a"), computed)
    with pytest.raises(ConflictError) as caught:
        await engine.columns.add_inputs(table, {"b": TEXT}, author="test")
    assert caught.value.code == "column_computed"


@pytest.mark.parametrize("text", ["a\0", "a\udcff", "\\\0"])
async def test_a_template_that_cannot_be_stored_is_refused(engine: Engine, text: str) -> None:
    table = await engine.table("unstorable", ColumnDraft(name="a"))
    draft = ColumnDraft(name="b", kind="template", template=text)
    with pytest.raises(InvalidError) as caught:
        await engine.columns.add(table, draft, author="test")
    assert caught.value.code == "text_unstorable"


async def test_a_backslash_before_u0000_is_no_nul(engine: Engine) -> None:
    table = await engine.table("backslash", ColumnDraft(name="a"))
    draft = ColumnDraft(name="b", kind="template", template="\\u0000 {{a}}")
    await engine.columns.add(table, draft, author="test")


@pytest.mark.parametrize(("namespace", "name"), [("a/b", "c"), ("a", "b/c")])
async def test_a_name_with_a_slash_could_not_be_told_from_two(
    pool: Pool, namespace: str, name: str
) -> None:
    async with pool.connection() as connection:
        with pytest.raises(InvalidError, match="slash"):
            await Definitions(connection).create_collection(namespace, name)


async def test_a_name_that_cannot_be_stored_is_of_no_collection(pool: Pool) -> None:
    async with pool.connection() as connection:
        assert await Definitions(connection).find_collection("default", "a\udcff") is None


async def test_a_collection_that_was_deleted_meanwhile_is_said_to_be(
    engine: Engine, pool: Pool
) -> None:
    table = await engine.table("gone")
    async with pool.connection() as connection:
        await Definitions(connection).delete_collection(table)
    with pytest.raises(NotFoundError, match="number") as caught:
        await engine.schema(table)
    assert "deleted" in str(caught.value)
