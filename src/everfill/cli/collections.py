"""`everfill collection`: list, show, rename, duplicate, cap, delete."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from everfill.app import open_app
from everfill.cli.console import (
    AsJson,
    DataDir,
    err,
    out,
    print_json,
    print_table,
    run,
    settings_of,
)
from everfill.cli.exit_codes import ExitCode
from everfill.cli.naming import CollectionName, find_collection
from everfill.tables.definitions import Definitions
from everfill.tables.type_syntax import format_type

__all__ = ["collection"]

collection = typer.Typer(help="Collections: the tables.", no_args_is_help=True)

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@collection.command("list")
def list_(data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """All collections."""

    async def work() -> int:
        async with open_app(settings_of(data_dir)) as app, app.pool.connection() as connection:
            found = await Definitions(connection).list_collections()
        if as_json:
            print_json(
                [
                    {
                        "collection_id": item.collection_id,
                        "namespace": item.namespace,
                        "name": item.name,
                        "cap_cells": item.cap_cells,
                        "created_at": item.created_at,
                    }
                    for item in found
                ]
            )
        else:
            print_table(
                ["namespace", "name", "cap", "created"],
                [
                    [
                        escape(item.namespace),
                        escape(item.name),
                        f"{item.cap_cells:,}",
                        f"{item.created_at:%Y-%m-%d %H:%M}",
                    ]
                    for item in found
                ],
            )
        return ExitCode.DONE

    run(work())


@collection.command("show")
def show(name: CollectionName, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """A collection's columns, and what was done to it lately."""

    async def work() -> int:
        async with open_app(settings_of(data_dir)) as app:
            found, schema = await find_collection(app, name)
            async with app.pool.connection() as connection:
                changes = await Definitions(connection).list_changes(found.collection_id)
        columns = [
            {
                "name": column.name,
                "type": format_type(column.type),
                "kind": column.computation.kind if column.computation else None,
                "template": schema.template_of(column),
                "version": column.definition_version,
            }
            for column in schema.columns
        ]
        if as_json:
            history = [
                {"author": who, "action": what, "detail": detail, "at": at}
                for who, what, detail, at in changes
            ]
            print_json({"name": found.name, "columns": columns, "changes": history})
            return ExitCode.DONE
        print_table(
            ["column", "type", "kind", "template"],
            [
                [
                    escape(str(item["name"])),
                    escape(str(item["type"])),
                    escape(str(item["kind"] or "-")),
                    escape(str(item["template"] or "-")),
                ]
                for item in columns
            ],
        )
        for who, what, _, at in changes[:10]:
            out.print(f"[dim]{at:%Y-%m-%d %H:%M:%S}[/]  {escape(who)}  {escape(what)}")
        return ExitCode.DONE

    run(work())


@collection.command("rename")
def rename(name: CollectionName, new_name: str, data_dir: DataDir = None) -> None:
    """Give a collection another name."""

    async def work() -> int:
        async with open_app(settings_of(data_dir)) as app:
            found, _ = await find_collection(app, name)
            async with app.pool.connection() as connection:
                await Definitions(connection).update_collection(found.collection_id, name=new_name)
        return ExitCode.DONE

    run(work())


@collection.command("cap")
def cap(
    name: CollectionName,
    cells: Annotated[int, typer.Argument(min=1, help="Cells in flight at once.")],
    data_dir: DataDir = None,
) -> None:
    """Set how many cells of a collection may be in flight at once."""

    async def work() -> int:
        async with open_app(settings_of(data_dir)) as app:
            found, _ = await find_collection(app, name)
            async with app.pool.connection() as connection:
                await Definitions(connection).update_collection(
                    found.collection_id, cap_cells=cells
                )
        return ExitCode.DONE

    run(work())


@collection.command("duplicate")
def duplicate(name: CollectionName, new_name: str, data_dir: DataDir = None) -> None:
    """Copy a collection with its rows and values; the copy reads itself, not the original."""

    async def work() -> int:
        async with open_app(settings_of(data_dir)) as app:
            found, _ = await find_collection(app, name)
            async with app.pool.connection() as connection, connection.transaction():
                await app.queue.lock(connection, found.collection_id)
                copy = await Definitions(connection).duplicate(found, new_name)
        err.print(f"Made {escape(copy.namespace)}/{escape(copy.name)}.")
        return ExitCode.DONE

    run(work())


@collection.command("delete")
def delete(name: CollectionName, yes: Yes = False, data_dir: DataDir = None) -> None:
    """Delete a collection with everything in it."""

    async def work() -> int:
        async with open_app(settings_of(data_dir)) as app:
            found, _ = await find_collection(app, name)
            if not yes:
                typer.confirm(f"Delete {name} and everything in it?", abort=True, err=True)
            async with app.pool.connection() as connection, connection.transaction():
                await app.queue.lock(connection, found.collection_id)
                await Definitions(connection).delete_collection(found.collection_id)
        err.print("Deleted.")
        return ExitCode.DONE

    run(work())
