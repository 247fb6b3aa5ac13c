"""`everfill cell`: show, set, reset, lock, unlock."""

from __future__ import annotations

from typing import Annotated

import typer

from everfill.app import App, open_app
from everfill.cli.console import AsJson, DataDir, run, settings_of, tell_queued
from everfill.cli.exit_codes import ExitCode
from everfill.cli.naming import CollectionName, find_collection
from everfill.cli.show import show as show_row
from everfill.kernel.ids import CellKey, CollectionId, RowId

__all__ = ["cell"]

cell = typer.Typer(help="Single cells.", no_args_is_help=True)

_AUTHOR = "person:cli"

RowNumber = Annotated[int, typer.Argument(metavar="ROW", min=1)]
ColumnName = Annotated[str, typer.Argument(metavar="COLUMN")]


@cell.command("show")
def show(
    collection: CollectionName, row: RowNumber, data_dir: DataDir = None, as_json: AsJson = False
) -> None:
    """The cells of a row, each with its status and where its value comes from."""
    show_row(collection, row, 1, 1, data_dir, as_json)


@cell.command("set")
def set_(
    collection: CollectionName,
    row: RowNumber,
    column: ColumnName,
    value: Annotated[str | None, typer.Argument(help="Left out: null.")] = None,
    data_dir: DataDir = None,
) -> None:
    """Type a value; in a computed cell it stands over the computed one."""

    async def work() -> int:
        async with open_app(settings_of(data_dir)) as app:
            collection_id, key = await _key(app, collection, row, column)
            queued = await app.edits.set_cells(collection_id, {key: value}, author=_AUTHOR)
        tell_queued(queued)
        return ExitCode.DONE

    run(work())


@cell.command("reset")
def reset(
    collection: CollectionName, row: RowNumber, column: ColumnName, data_dir: DataDir = None
) -> None:
    """Drop the typed value; a computed cell shows its computed one again."""

    async def work() -> int:
        async with open_app(settings_of(data_dir)) as app:
            collection_id, key = await _key(app, collection, row, column)
            queued = await app.edits.clear_cells(collection_id, [key], author=_AUTHOR)
        tell_queued(queued)
        return ExitCode.DONE

    run(work())


@cell.command("lock")
def lock(
    collection: CollectionName, row: RowNumber, column: ColumnName, data_dir: DataDir = None
) -> None:
    """Keep a computed cell from any recompute."""
    _set_locked(collection, row, column, data_dir, locked=True)


@cell.command("unlock")
def unlock(
    collection: CollectionName, row: RowNumber, column: ColumnName, data_dir: DataDir = None
) -> None:
    """Let a locked cell be recomputed again."""
    _set_locked(collection, row, column, data_dir, locked=False)


def _set_locked(collection: str, row: int, column: str, data_dir: DataDir, *, locked: bool) -> None:
    async def work() -> int:
        async with open_app(settings_of(data_dir)) as app:
            collection_id, key = await _key(app, collection, row, column)
            await app.edits.lock_cells(collection_id, [key], locked=locked, author=_AUTHOR)
        return ExitCode.DONE

    run(work())


async def _key(app: App, collection: str, row: int, column: str) -> tuple[CollectionId, CellKey]:
    found, schema = await find_collection(app, collection)
    return found.collection_id, CellKey(RowId(row), schema.get(column).column_id)
