"""`everfill column`: list, add, set, rename, drop."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from everfill.app import open_app
from everfill.autofill.columns import ColumnDraft
from everfill.autofill.dispatch import Request
from everfill.cli.collections import Yes, show
from everfill.cli.column_syntax import parse_column
from everfill.cli.console import AsJson, DataDir, err, run, settings_of, tell_queued
from everfill.cli.exit_codes import ExitCode
from everfill.cli.naming import CollectionName, find_collection
from everfill.tables.type_syntax import parse_type

__all__ = ["column"]

column = typer.Typer(
    help="Columns: what a table holds, and how it is filled.", no_args_is_help=True
)

_AUTHOR = "person:cli"

Definition = Annotated[
    str, typer.Argument(help="'name[:type] = kind: template', or 'name[:type]' for an input.")
]


@column.command("list")
def list_(collection: CollectionName, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """The columns of a collection."""
    show(collection, data_dir, as_json)


@column.command("add")
def add(collection: CollectionName, definition: Definition, data_dir: DataDir = None) -> None:
    """Add a column, and fill or queue its cells."""

    async def work() -> int:
        draft = _draft(definition)
        async with open_app(settings_of(data_dir)) as app:
            found, _ = await find_collection(app, collection)
            column_id = await app.columns.add(found.collection_id, draft, author=_AUTHOR)
            if draft.kind and draft.schedule.mode == "on_change":
                request = Request(
                    collection_id=found.collection_id,
                    columns=[column_id],
                    author=_AUTHOR,
                    reason="add_column",
                )
                dispatched = await app.dispatcher.dispatch(request)
                tell_queued(dispatched.cells - dispatched.filled, filled=dispatched.filled)
        return ExitCode.DONE

    run(work())


@column.command("set")
def set_(collection: CollectionName, definition: Definition, data_dir: DataDir = None) -> None:
    """Change a column's type or computation; what it holds is outdated until it is reprocessed."""

    async def work() -> int:
        draft = _draft(definition)
        async with open_app(settings_of(data_dir)) as app:
            found, _ = await find_collection(app, collection)
            outdated = await app.columns.redefine(
                found.collection_id, draft.name, draft, author=_AUTHOR
            )
        if outdated:
            command = f"everfill reprocess {escape(collection)} --only outdated"
            err.print(f"Its values are outdated. `{command}` computes them.", soft_wrap=True)
        return ExitCode.DONE

    run(work())


@column.command("rename")
def rename(collection: CollectionName, name: str, new_name: str, data_dir: DataDir = None) -> None:
    """Rename a column; templates that read it follow."""

    async def work() -> int:
        async with open_app(settings_of(data_dir)) as app:
            found, _ = await find_collection(app, collection)
            await app.columns.rename(found.collection_id, name, new_name, author=_AUTHOR)
        return ExitCode.DONE

    run(work())


@column.command("drop")
def drop(
    collection: CollectionName,
    name: str,
    cascade: Annotated[
        bool, typer.Option("--cascade", help="Also drop the columns that depend on it.")
    ] = False,
    yes: Yes = False,
    data_dir: DataDir = None,
) -> None:
    """Drop a column with its values."""

    async def work() -> int:
        async with open_app(settings_of(data_dir)) as app:
            found, schema = await find_collection(app, collection)
            chosen = schema.get(name)
            names = [name]
            if cascade:
                names += [item.name for item in schema.downstream([chosen.column_id])]
            if not yes:
                typer.confirm(f"Drop {', '.join(names)} of {collection}?", abort=True, err=True)
            dropped = await app.columns.drop(
                found.collection_id, name, cascade=cascade, author=_AUTHOR
            )
        err.print(f"Dropped {', '.join(item.name for item in dropped)}.", markup=False)
        return ExitCode.DONE

    run(work())


def _draft(definition: str) -> ColumnDraft:
    if "=" in definition:
        return parse_column(definition)
    name, colon, type_text = definition.partition(":")
    return ColumnDraft(name=name.strip(), type=parse_type(type_text) if colon else None)
