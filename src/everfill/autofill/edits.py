"""Edits: what a person, an agent or a source changes, each with the dispatch that follows from it.

Every edit is one transaction under the collection's lock: the value, the signals to what depends on
it, and the record of who did it stand or fall together.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from everfill.autofill.dispatch import Dispatcher
from everfill.autofill.queue import ColumnSignal, Queue
from everfill.infra.blobs import Blobs
from everfill.infra.postgres import Connection, Pool
from everfill.kernel.errors import InvalidError, NotFoundError
from everfill.kernel.ids import CellKey, CollectionId, ColumnId, RowId
from everfill.tables.cells import Cells, NewRow
from everfill.tables.definitions import Definitions
from everfill.tables.parse import parse_value
from everfill.tables.schema import Column, Schema
from everfill.tables.values import MISSING, JsonValue, Missing

__all__ = ["Edits", "SourceValues"]


_NAMED_MAX: Final = 5  # rows that an error names
_RECORDED_MAX: Final = 20  # cells that a change names


@dataclass(frozen=True, slots=True)
class SourceValues:
    """A row as a source has it: its key there, and its values (MISSING where there is none)."""

    key: str
    values: Mapping[ColumnId, JsonValue | Missing]


@dataclass(frozen=True, slots=True)
class _Edit:
    """An open edit: its transaction, and the columns as they are under its lock."""

    connection: Connection
    schema: Schema
    cells: Cells


class Edits:
    """Changes of rows and cells."""

    def __init__(self, pool: Pool, queue: Queue, blobs: Blobs, dispatcher: Dispatcher) -> None:
        self._pool = pool
        self._queue = queue
        self._blobs = blobs
        self._dispatcher = dispatcher

    async def set_cells(
        self, collection_id: CollectionId, values: Mapping[CellKey, JsonValue], *, author: str
    ) -> int:
        """Type values into cells; in computed cells they stand over the computed ones.

        Returns:
            How many cells will be recomputed.

        Raises:
            InvalidError: A value does not fit its column; names the cell. Nothing is changed.
            NotFoundError: A row or column does not exist.
        """
        async with self._edit(collection_id) as edit:
            await _check_rows(edit, values)
            parsed = {key: _parse(_column(edit.schema, key), key, values[key]) for key in values}
            inputs, computed = _split(edit.schema, parsed)
            changed = await edit.cells.set_values(collection_id, inputs, computed=False)
            dropped = await self._queue.drop(
                edit.connection, collection_id, sorted(computed), running=False
            )
            await edit.cells.mark_outdated(collection_id, dropped)
            changed += await edit.cells.set_values(collection_id, computed, computed=True)
            signalled = await self._dispatcher.follow(
                edit.connection, edit.schema, sorted({*changed, *computed})
            )
            await self._queue.release(edit.connection, collection_id, dropped)
            await _record(edit, author, "set_cells", _named(edit.schema, values))
        await self._dispatcher.announce(collection_id)
        return signalled

    async def clear_cells(
        self, collection_id: CollectionId, cells: Sequence[CellKey], *, author: str
    ) -> int:
        """Empty input cells, and *reset* computed ones: their computed value shows again.

        A reset cell is recomputed only if its value is not the one for its present inputs.

        Returns:
            How many cells will be recomputed.
        """
        async with self._edit(collection_id) as edit:
            await _check_rows(edit, cells)
            for key in cells:
                _column(edit.schema, key)
            cleared = await edit.cells.clear_values(collection_id, cells)
            signalled = await self._signal(edit, cleared)
            signalled += await self._dispatcher.follow(edit.connection, edit.schema, cleared)
            await _record(edit, author, "clear_cells", _named(edit.schema, cells))
        await self._dispatcher.announce(collection_id)
        return signalled

    async def lock_cells(
        self,
        collection_id: CollectionId,
        cells: Sequence[CellKey],
        *,
        locked: bool,
        author: str,
    ) -> int:
        """Lock computed cells against any recompute, or unlock them and bring them up to date.

        Returns:
            How many cells will be recomputed.
        """
        async with self._edit(collection_id) as edit:
            await _check_rows(edit, cells)
            for key in cells:
                _check_computed(_column(edit.schema, key))
            await edit.cells.set_locked(collection_id, cells, locked=locked)
            if locked:
                dropped = await self._queue.drop(
                    edit.connection, collection_id, cells, running=True
                )
                await edit.cells.mark_outdated(collection_id, dropped)
                signalled = 0
            else:
                dropped = []
                signalled = await self._signal(edit, cells)
            signalled += await self._dispatcher.follow(edit.connection, edit.schema, cells)
            await self._queue.release(edit.connection, collection_id, dropped)
            action = "lock_cells" if locked else "unlock_cells"
            await _record(edit, author, action, _named(edit.schema, cells))
        await self._dispatcher.announce(collection_id)
        return signalled

    async def append_rows(
        self,
        collection_id: CollectionId,
        rows: Sequence[Mapping[ColumnId, JsonValue]],
        *,
        author: str,
    ) -> Sequence[RowId]:
        """Append rows with typed values; their computed cells are dispatched at once."""
        async with self._edit(collection_id) as edit:
            fresh = [_new_row(edit.schema, place, row) for place, row in enumerate(rows, start=1)]
            numbers = [RowId(number) for number in await edit.cells.append(collection_id, fresh)]
            await self._queue.signal(
                edit.connection, collection_id, numbers, _automatic(edit.schema)
            )
            await _record(edit, author, "append_rows", {"rows": len(rows)})
        await self._dispatcher.announce(collection_id)
        return numbers

    async def delete_rows(
        self, collection_id: CollectionId, rows: Sequence[RowId], *, author: str
    ) -> int:
        """Delete rows; returns how many there were. A call under way for them cannot land."""
        async with self._edit(collection_id) as edit:
            deleted = await edit.cells.delete_rows(collection_id, rows)
            await _record(edit, author, "delete_rows", {"rows": len(deleted)})
        return len(deleted)

    async def take_rows(
        self, collection_id: CollectionId, rows: Sequence[SourceValues], *, update: bool
    ) -> tuple[int, int]:
        """Take a batch of rows from a source: new keys are appended, known ones updated.

        The computed cells of new rows are not dispatched here: an import ends with one run over
        everything that is unfinished. What an update changes is.

        Args:
            collection_id: Where to.
            rows: Distinct keys.
            update: Whether known rows are compared at all; not needed for an unchanged source.

        Returns:
            Rows appended, and cells changed in known rows.
        """
        async with self._edit(collection_id) as edit:
            known = await edit.cells.rows_by_key(collection_id, [row.key for row in rows])
            fresh = [
                NewRow(row.key, {k: v for k, v in row.values.items() if v is not MISSING})
                for row in rows
                if row.key not in known
            ]
            if fresh:
                await edit.cells.append(collection_id, fresh)
            changed: list[CellKey] = []
            if update:
                changed = await self._update(edit, [row for row in rows if row.key in known], known)
        return len(fresh), len(changed)

    async def _update(
        self, edit: _Edit, rows: Sequence[SourceValues], known: Mapping[str, RowId]
    ) -> list[CellKey]:
        given: dict[CellKey, JsonValue] = {}
        absent: list[CellKey] = []
        for row in rows:
            for column_id, value in row.values.items():
                key = CellKey(known[row.key], column_id)
                if value is MISSING:
                    absent.append(key)
                else:
                    given[key] = value
        collection_id = edit.schema.collection_id
        changed = await edit.cells.set_values(collection_id, given, computed=False)
        changed += await edit.cells.clear_values(collection_id, absent)
        await self._dispatcher.follow(edit.connection, edit.schema, changed)
        return changed

    async def _signal(self, edit: _Edit, cells: Sequence[CellKey]) -> int:
        """Signal computed cells themselves, without force."""
        by_column: dict[ColumnId, list[RowId]] = {}
        for cell in cells:
            if edit.schema.by_id[cell.column_id].computation:
                by_column.setdefault(cell.column_id, []).append(cell.row_id)
        signalled = 0
        for column_id, rows in by_column.items():
            columns = [_signal_of(edit.schema.by_id[column_id])]
            signalled += await self._queue.signal(
                edit.connection, edit.schema.collection_id, sorted(rows), columns
            )
        return signalled

    @asynccontextmanager
    async def _edit(self, collection_id: CollectionId) -> AsyncGenerator[_Edit, None]:
        async with self._pool.connection() as connection, connection.transaction():
            await self._queue.lock(connection, collection_id)
            schema = await Definitions(connection).load_schema(collection_id)
            yield _Edit(connection, schema, Cells(connection, self._blobs))


async def _check_rows(edit: _Edit, cells: Iterable[CellKey]) -> None:
    wanted = {cell.row_id for cell in cells}
    existing = await edit.cells.existing_rows(edit.schema.collection_id, sorted(wanted))
    if missing := sorted(wanted - existing):
        named = ", ".join(str(row_id) for row_id in missing[:_NAMED_MAX])
        raise NotFoundError("row_unknown", f"There is no row {named} in this collection.")


async def _record(edit: _Edit, author: str, action: str, detail: Mapping[str, JsonValue]) -> None:
    definitions = Definitions(edit.connection)
    await definitions.record_change(edit.schema.collection_id, author, action, dict(detail))


def _named(schema: Schema, cells: Iterable[CellKey]) -> dict[str, JsonValue]:
    """The cells of an edit as history keeps them: some by row and column name, and the count."""
    every = sorted(cells)
    some: list[JsonValue] = [
        [cell.row_id, schema.names[cell.column_id]] for cell in every[:_RECORDED_MAX]
    ]
    return {"count": len(every), "cells": some}


def _new_row(schema: Schema, place: int, row: Mapping[ColumnId, JsonValue]) -> NewRow:
    """A row to append; errors name it by its place in the request, from 1."""
    values: dict[ColumnId, JsonValue] = {}
    for column_id, value in row.items():
        key = CellKey(RowId(place), column_id)
        column = _column(schema, key)
        if column.computation:
            raise InvalidError(
                "column_computed",
                f"Column {column.name!r} is computed; a new row cannot bring a value for it.",
                hint="Append the row, then set the cell to type over the computed value.",
            )
        values[column_id] = _parse(column, key, value)
    return NewRow(None, values)


def _column(schema: Schema, key: CellKey) -> Column:
    if key.column_id not in schema.by_id:
        raise NotFoundError("column_unknown", f"There is no column {key.column_id}.")
    return schema.by_id[key.column_id]


def _check_computed(column: Column) -> None:
    if column.computation is None:
        raise InvalidError(
            "column_not_computed",
            f"Column {column.name!r} is an input; only computed cells can be locked.",
        )


def _parse(column: Column, key: CellKey, value: JsonValue) -> JsonValue:
    if value is None:
        return None
    try:
        return parse_value(value, column.type)
    except InvalidError as error:
        raise InvalidError(
            error.code,
            f"Row {key.row_id}, column {column.name!r}: {error.message}",
            hint=error.hint,
        ) from None


def _split(
    schema: Schema, values: Mapping[CellKey, JsonValue]
) -> tuple[dict[CellKey, JsonValue], dict[CellKey, JsonValue]]:
    """Values of input cells, and of computed ones."""
    inputs: dict[CellKey, JsonValue] = {}
    computed: dict[CellKey, JsonValue] = {}
    for key, value in values.items():
        target = computed if schema.by_id[key.column_id].computation else inputs
        target[key] = value
    return inputs, computed


def _automatic(schema: Schema) -> list[ColumnSignal]:
    """What is computed by itself in a new row."""
    return [
        _signal_of(column)
        for column in schema.computed
        if column.computation and column.computation.schedule.mode == "on_change"
    ]


def _signal_of(column: Column) -> ColumnSignal:
    assert column.computation, "only computed columns are signalled"
    return ColumnSignal(
        column_id=column.column_id, cost_class=column.computation.cost_class, explicit=True
    )
