"""`everfill show`: a page of a collection, or one row with all that is known of it."""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer
from rich.markup import escape

from everfill.app import open_app
from everfill.cli.console import (
    AsJson,
    DataDir,
    out,
    print_json,
    print_table,
    run,
    settings_of,
    shown,
)
from everfill.cli.exit_codes import ExitCode
from everfill.cli.export import STYLES, load_page, print_page
from everfill.cli.naming import CollectionName, find_collection
from everfill.kernel.errors import NotFoundError
from everfill.kernel.ids import RowId
from everfill.tables.cells import Cell
from everfill.tables.schema import Schema
from everfill.tables.values import MISSING

__all__ = ["show"]

_PAGE_ROWS: Final = 20


def show(
    collection: CollectionName,
    row: Annotated[int | None, typer.Argument(metavar="[ROW]")] = None,
    first: Annotated[int, typer.Option("--from", min=1, help="First row of the page.")] = 1,
    rows: Annotated[int, typer.Option("--rows", min=1, max=1_000)] = _PAGE_ROWS,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """A page of a collection; or one row, each cell with its status and where it comes from."""

    async def work() -> int:
        async with open_app(settings_of(data_dir), name="everfill-show") as app:
            _, schema = await find_collection(app, collection)
            page = await load_page(app, schema, first=row or first, count_max=1 if row else rows)
            if row and (not page or page[0][0] != row):
                raise NotFoundError("row_unknown", f"{collection} has no row {row}.")
            if as_json:
                print_json([_row_data(schema, *item) for item in page])
            elif row:
                _print_row(schema, *page[0])
            else:
                print_page(schema.columns, page)
        return ExitCode.DONE

    run(work())


def _print_row(schema: Schema, row_id: RowId, cells: Any) -> None:
    out.print(f"[bold]Row {row_id}[/]")
    print_table(
        ["column", "value", "status", "why and how"],
        [
            [
                escape(column.name),
                shown(cell.value),
                f"[{STYLES.get(cell.status, 'green')}]{cell.status.replace('_', ' ')}[/]",
                _explanation(cell),
            ]
            for column in schema.columns
            for cell in [cells.get(column.column_id, Cell())]
        ],
    )


def _explanation(cell: Cell) -> str:
    parts: list[str] = []
    if cell.locked:
        parts.append("locked")
    if cell.user_value is not MISSING and cell.computed_value is not MISSING:
        parts.append(f"typed over {shown(cell.computed_value)}")
    if cell.reason:
        parts += [
            escape(str(value)) for value in cell.reason.values() if value not in {True, False}
        ]
    if cell.retry_at:
        parts.append(f"tried again at {cell.retry_at:%H:%M:%S}")
    if cell.computed_at:
        parts.append(f"computed {cell.computed_at:%Y-%m-%d %H:%M:%S}")
    provenance = cell.provenance or {}
    if seconds := provenance.get("seconds"):
        parts.append(f"in {seconds} s")
    if note := provenance.get("note"):
        parts.append(escape(str(note)))
    for name in ("model", "input_tokens", "output_tokens", "cost_usd"):
        if value := provenance.get(name):
            parts.append(f"{name.replace('_', ' ')} {escape(str(value))}")
    return "; ".join(parts)


def _row_data(schema: Schema, row_id: RowId, cells: Any) -> dict[str, Any]:
    return {
        "row": row_id,
        "cells": {c.name: _cell_data(cells.get(c.column_id)) for c in schema.columns},
    }


def _cell_data(cell: Cell | None) -> dict[str, Any]:
    """A cell as JSON; a value that is missing is absent, which null is not."""
    if cell is None:
        return {"status": "empty"}
    data: dict[str, Any] = {"status": cell.status, "locked": cell.locked}
    for name in ("value", "user_value", "computed_value"):
        if getattr(cell, name) is not MISSING:
            data[name] = getattr(cell, name)
    for name in ("reason", "retry_at", "computed_at", "definition_version", "provenance"):
        if getattr(cell, name) is not None:
            data[name] = getattr(cell, name)
    return data
