"""A collection out to a file, or its first rows to the screen; page by page, in constant memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Final

from everfill.app import App
from everfill.cli.console import print_table, shown
from everfill.infra.postgres import persist
from everfill.kernel.ids import CollectionId, ColumnId, RowId
from everfill.kernel.tasks import one_ahead
from everfill.tables.cells import Cell, Cells, CellStatus
from everfill.tables.definitions import Definitions
from everfill.tables.exports import Sink, SinkColumn, SinkRow, open_sink
from everfill.tables.schema import Column, Schema

__all__ = ["STYLES", "export", "load_page", "pages", "print_page"]

PAGE_ROWS: Final = 1_000
STYLES: Final = {
    CellStatus.FAILED: "red",
    CellStatus.NOT_FOUND: "yellow",
    CellStatus.WAITING: "yellow",
    CellStatus.OUTDATED: "yellow",
    CellStatus.QUEUED: "dim",
    CellStatus.COMPUTING: "cyan",
    CellStatus.EMPTY: "dim",
}
_EMPTY: Final = Cell()

Row = tuple[RowId, Mapping[ColumnId, Cell]]


async def export(
    app: App,
    collection_id: CollectionId,
    path: Path,
    *,
    with_status: bool,
    on_rows: Callable[[int], None],
) -> Sequence[str]:
    """Write every row to a file, all columns in order.

    The file appears whole, or not at all.

    Returns:
        What the format could not say, one sentence each.
    """
    schema = await _schema(app, collection_id)
    columns = [
        SinkColumn(name=column.name, type=column.type, computed=column.computation is not None)
        for column in schema.columns
    ]
    written = 0
    async with (
        _off_the_loop(open_sink(path, columns, with_status=with_status)) as sink,
        aclosing(pages(app, schema)) as found,
    ):
        async for page in found:
            rows = [_sink_row(schema.columns, cells, with_status=with_status) for _, cells in page]
            await asyncio.to_thread(sink.write, rows)
            written += len(page)
            on_rows(written)
    return sink.notes


@asynccontextmanager
async def _off_the_loop(sink: Sink) -> AsyncGenerator[Sink, None]:
    """Open and finish a sink in a thread: a large Parquet or Excel file takes seconds."""
    await asyncio.to_thread(sink.__enter__)
    try:
        yield sink
    except BaseException as error:
        await asyncio.to_thread(sink.__exit__, type(error), error, error.__traceback__)
        raise
    await asyncio.to_thread(sink.__exit__, None, None, None)


def pages(app: App, schema: Schema) -> AsyncGenerator[Sequence[Row], None]:
    """All rows in order, a page at a time; the next one is read while one is used."""
    return one_ahead(_pages(app, schema))


async def _pages(app: App, schema: Schema) -> AsyncGenerator[Sequence[Row], None]:
    first = 1
    while page := await load_page(app, schema, first=first, count_max=PAGE_ROWS):
        yield page
        first = page[-1][0] + 1


async def load_page(app: App, schema: Schema, *, first: int, count_max: int) -> Sequence[Row]:
    """The rows from a number on, with their cells as a person sees them."""

    async def load() -> Sequence[Row]:
        async with app.pool.connection() as connection:
            cells = Cells(connection, app.blobs)
            rows = await cells.next_rows(
                schema.collection_id, first=first, last=2**62, count_max=count_max
            )
            return list((await cells.read(schema, rows)).items())

    return await persist(load)


def print_page(columns: Sequence[Column], page: Sequence[Row]) -> None:
    """Rows as a table; a cell without a value says why in its place."""
    print_table(
        ["row", *(column.name for column in columns)],
        [
            [str(row_id), *(_shown_cell(cells.get(c.column_id, _EMPTY)) for c in columns)]
            for row_id, cells in page
        ],
        one_line=True,
    )


def _shown_cell(cell: Cell) -> str:
    if cell.status is CellStatus.READY or cell.status is CellStatus.EMPTY:
        return shown(cell.value)
    style = STYLES[cell.status]
    told = cell.status.replace("_", " ")
    if cell.status is CellStatus.OUTDATED:
        return f"{shown(cell.value)} [{style}]({told})[/]"
    return f"[{style}]{told}[/]"


def _sink_row(
    columns: Sequence[Column], cells: Mapping[ColumnId, Cell], *, with_status: bool
) -> SinkRow:
    row = [cells.get(column.column_id, _EMPTY) for column in columns]
    if not with_status:
        return SinkRow([cell.value for cell in row])
    return SinkRow(
        values=[cell.value for cell in row],
        statuses=[
            cell.status if column.computation else None
            for column, cell in zip(columns, row, strict=True)
        ],
        errors=[_error(cell) for cell in row],
    )


def _error(cell: Cell) -> str | None:
    if cell.reason is None:
        return None
    code, message = cell.reason.get("code"), cell.reason.get("message")
    return f"{code}: {message}" if message else str(code)


async def _schema(app: App, collection_id: CollectionId) -> Schema:
    async with app.pool.connection() as connection:
        return await Definitions(connection).load_schema(collection_id)
