"""`everfill row`: list, add, delete."""

from __future__ import annotations

from typing import Annotated

import typer

from everfill.app import open_app
from everfill.cli.collections import Yes
from everfill.cli.console import AsJson, DataDir, err, print_json, run, settings_of
from everfill.cli.exit_codes import ExitCode
from everfill.cli.naming import CollectionName, find_collection
from everfill.cli.show import show
from everfill.kernel.errors import InvalidError
from everfill.kernel.ids import ColumnId, RowId
from everfill.tables.schema import Schema
from everfill.tables.values import JsonValue

__all__ = ["row"]

row = typer.Typer(help="Rows of a collection.", no_args_is_help=True)

_AUTHOR = "person:cli"


@row.command("list")
def list_(
    collection: CollectionName,
    first: Annotated[int, typer.Option("--from", min=1)] = 1,
    rows: Annotated[int, typer.Option("--rows", min=1, max=1_000)] = 20,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """A page of rows."""
    show(collection, None, first, rows, data_dir, as_json)


@row.command("add")
def add(
    collection: CollectionName,
    values: Annotated[list[str], typer.Argument(metavar="COLUMN=VALUE...")],
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Append a row; its computed cells are queued."""

    async def work() -> int:
        async with open_app(settings_of(data_dir)) as app:
            found, schema = await find_collection(app, collection)
            typed = dict(_typed(schema, text) for text in values)
            (number,) = await app.edits.append_rows(found.collection_id, [typed], author=_AUTHOR)
        if as_json:
            print_json({"row": number})
        else:
            err.print(f"Row {number}.")
        return ExitCode.DONE

    run(work())


@row.command("delete")
def delete(
    collection: CollectionName,
    numbers: Annotated[list[int], typer.Argument(metavar="ROW...")],
    yes: Yes = False,
    data_dir: DataDir = None,
) -> None:
    """Delete rows with their cells."""

    async def work() -> int:
        async with open_app(settings_of(data_dir)) as app:
            found, _ = await find_collection(app, collection)
            if not yes:
                typer.confirm(f"Delete {len(numbers)} rows of {collection}?", abort=True, err=True)
            rows = [RowId(number) for number in numbers]
            deleted = await app.edits.delete_rows(found.collection_id, rows, author=_AUTHOR)
        err.print(f"{deleted} rows deleted.")
        return ExitCode.DONE

    run(work())


def _typed(schema: Schema, text: str) -> tuple[ColumnId, JsonValue]:
    name, equals, value = text.partition("=")
    if not equals:
        raise InvalidError("row_syntax", f"{text!r} is no value.", hint="Write COLUMN=VALUE.")
    return schema.get(name.strip()).column_id, value
