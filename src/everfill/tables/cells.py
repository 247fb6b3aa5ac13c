"""The repository of rows and cells: what a person typed, what was computed, what is shown.

Statuses are for people: *queued*, *computing* and *waiting for an upstream* are derived from the
queue, the rest is what the last settled outcome left.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from everfill.infra.blobs import Blobs
from everfill.infra.postgres import Connection, load_queries
from everfill.kernel.ids import CellKey, CollectionId, ColumnId, RowId
from everfill.tables.large_values import LargeValues
from everfill.tables.schema import Column, Schema
from everfill.tables.values import MISSING, BlobRef, JsonValue, Missing, decode

__all__ = ["SHOWN", "Cell", "CellStatus", "Cells", "Input", "NewRow"]

_SQL: Final = load_queries("everfill.tables", "cells.sql")
Params: TypeAlias = "dict[str, Any]"


class CellStatus(StrEnum):
    """What a cell says of itself."""

    EMPTY = "empty"
    WAITING = "waiting"
    QUEUED = "queued"
    COMPUTING = "computing"
    READY = "ready"
    OUTDATED = "outdated"
    NOT_FOUND = "not_found"
    FAILED = "failed"


SHOWN: Final = frozenset({CellStatus.READY, CellStatus.OUTDATED})
"""Settled statuses whose computed value is shown."""


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One cell as a person sees it; made a million at a time by an export.

    Attributes:
        value: What is shown: the typed value, else the computed one, else MISSING.
        user_value: What was typed.
        computed_value: What was computed last, shown or hidden.
        status: What the cell says; a typed value is ready whatever it hides.
        reason: Why, for waiting, outdated, not found and failed cells: `{"code", "message", ...}`.
        locked: Whether it refuses any recompute.
        retry_at: When a cell that failed in passing is tried again.
        definition_version: Of its column, when the computed value was made.
        computed_at: When the computed value was made.
        provenance: Model, tokens, cost and seconds of the computed value.
    """

    value: JsonValue | Missing = MISSING
    user_value: JsonValue | Missing = MISSING
    computed_value: JsonValue | Missing = MISSING
    status: CellStatus = CellStatus.EMPTY
    reason: Mapping[str, JsonValue] | None = None
    locked: bool = False
    retry_at: datetime | None = None
    definition_version: int | None = None
    computed_at: datetime | None = None
    provenance: Mapping[str, JsonValue] | None = None


EMPTY: Final = Cell()


_STATUSES: Final = {status.value: status for status in CellStatus}
_NOTHING_KEPT: Final = (None, None, CellStatus.EMPTY.value, False, None, None, None, None)
"""What is kept of a cell that only the queue knows, in the order of `read_cells`."""


class Input(NamedTuple):
    """What a computation reads of one cell; `value` is still encoded, None where there is none."""

    value: str | None
    status: CellStatus
    overridden: bool
    locked: bool
    input_hash: bytes | None
    computed: bool


@dataclass(frozen=True, slots=True)
class NewRow:
    """A row to append: its identity in its source, and its values by column."""

    source_key: str | None
    values: Mapping[ColumnId, JsonValue]


class Cells:
    """Rows and cells, over the caller's connection and transaction."""

    def __init__(self, connection: Connection, blobs: Blobs) -> None:
        self._connection = connection
        self._large = LargeValues(blobs)

    async def append(self, collection_id: CollectionId, rows: Sequence[NewRow]) -> range:
        """Append rows in one COPY each for rows and cells; returns their numbers."""
        params: Params = {"collection_id": collection_id, "count": len(rows)}
        first = (await self._rows("reserve_rows", params))[0][0]
        numbers = range(first, first + len(rows))
        async with self._connection.cursor().copy(_SQL["copy_rows_in"]) as copy:
            lines = zip(numbers, rows, strict=True)
            await copy.write(
                "".join(f"{collection_id}\t{n}\t{_field(row.source_key)}\n" for n, row in lines)
            )
        cells = await self._cell_lines(collection_id, zip(numbers, rows, strict=True))
        async with self._connection.cursor().copy(_SQL["copy_cells_in"]) as copy:
            await copy.write(cells)
        return numbers

    async def rows_by_key(
        self, collection_id: CollectionId, keys: Sequence[str]
    ) -> dict[str, RowId]:
        """The rows that came from the given places of a source."""
        params: Params = {"collection_id": collection_id, "keys": list(keys)}
        return dict(await self._rows("rows_by_key", params))

    async def next_rows(
        self, collection_id: CollectionId, *, first: int, last: int, count_max: int
    ) -> list[RowId]:
        """The next rows from a number on, in order."""
        params: Params = {
            "collection_id": collection_id,
            "from": first,
            "to": last,
            "count_max": count_max,
        }
        return [row[0] for row in await self._rows("next_rows", params)]

    async def last_row(self, collection_id: CollectionId) -> int:
        """The greatest row number; 0 in an empty collection."""
        return (await self._rows("last_row", {"collection_id": collection_id}))[0][0]

    async def count_rows(self, collection_id: CollectionId) -> int:
        """How many rows there are."""
        return (await self._rows("count_rows", {"collection_id": collection_id}))[0][0]

    async def existing_rows(self, collection_id: CollectionId, rows: Sequence[RowId]) -> set[RowId]:
        """Which of the given rows exist."""
        params: Params = {"collection_id": collection_id, "rows": list(rows)}
        return {row[0] for row in await self._rows("existing_rows", params)}

    async def set_values(
        self,
        collection_id: CollectionId,
        values: Mapping[CellKey, JsonValue],
        *,
        computed: bool,
    ) -> list[CellKey]:
        """Set typed values of input or (as overrides) of computed cells.

        Returns:
            The cells whose shown value changed.
        """
        keys = sorted(values)
        params = _keys(collection_id, keys) | {
            "values": [(await self._large.store(values[key])).decode() for key in keys],
            "computed": computed,
        }
        return [CellKey(*row) for row in await self._rows("set_values", params)]

    async def clear_values(
        self, collection_id: CollectionId, cells: Sequence[CellKey]
    ) -> list[CellKey]:
        """Drop typed values; returns the cells that had one."""
        found = await self._rows("clear_values", _keys(collection_id, sorted(cells)))
        return [CellKey(*row) for row in found]

    async def set_locked(
        self, collection_id: CollectionId, cells: Sequence[CellKey], *, locked: bool
    ) -> None:
        """Lock computed cells against any recompute, or unlock them."""
        await self._run("set_locked", _keys(collection_id, sorted(cells)) | {"locked": locked})

    async def mark_outdated(self, collection_id: CollectionId, cells: Sequence[CellKey]) -> None:
        """Note that the computed values are not the newest."""
        await self._run("mark_outdated", _keys(collection_id, sorted(cells)))

    async def delete_rows(self, collection_id: CollectionId, rows: Sequence[RowId]) -> list[RowId]:
        """Delete rows with their cells and queue entries; returns those that existed."""
        params: Params = {"collection_id": collection_id, "rows": list(rows)}
        return [row[0] for row in await self._rows("delete_rows", params)]

    async def read(
        self, schema: Schema, rows: Sequence[RowId]
    ) -> dict[RowId, dict[ColumnId, Cell]]:
        """The cells of some rows as a person sees them; large values are fetched."""
        params: Params = {"collection_id": schema.collection_id, "rows": list(rows)}
        entries = {
            (row_id, column_id): (state, retry_at)
            for row_id, column_id, state, retry_at in await self._rows("read_entries", params)
        }
        page: dict[RowId, dict[ColumnId, Cell]] = {row_id: {} for row_id in rows}
        for row_id, column_id, *kept in await self._rows("read_cells", params):
            if column := schema.by_id.get(column_id):
                entry = entries.pop((row_id, column_id), None)
                page[row_id][column_id] = await self._cell(column, kept, entry)
        for (row_id, column_id), entry in entries.items():
            if column := schema.by_id.get(column_id):
                page[row_id][column_id] = await self._cell(column, _NOTHING_KEPT, entry)
        return page

    async def read_inputs(
        self, collection_id: CollectionId, rows: Sequence[RowId], columns: Sequence[ColumnId]
    ) -> dict[tuple[RowId, ColumnId], Input]:
        """What computations read of some cells, still encoded."""
        params: Params = {
            "collection_id": collection_id,
            "rows": list(rows),
            "columns": list(columns),
        }
        return {
            (row[0], row[1]): Input(row[2], _STATUSES[row[3]], *row[4:])
            for row in await self._rows("read_inputs", params)
        }

    async def _cell(
        self, column: Column, kept: Sequence[Any], entry: tuple[str, Any] | None
    ) -> Cell:
        user, computed, stored, locked, version, computed_at, reason, provenance = kept
        user_value = MISSING if user is None else decode(user)
        if isinstance(user_value, BlobRef):
            user_value = await self._large.fetch(user_value)
        computed_value = MISSING if computed is None else decode(computed)
        if isinstance(computed_value, BlobRef):
            computed_value = await self._large.fetch(computed_value)
        kept_as = settled = _STATUSES[stored]
        if settled is not CellStatus.EMPTY and version not in {None, column.definition_version}:
            settled, reason = CellStatus.OUTDATED, {"code": "definition_changed"}
        status, reason = _status(settled, reason, entry)
        if user_value is not MISSING:
            status = CellStatus.READY
        shown = computed_value if kept_as in SHOWN else MISSING
        return Cell(
            value=shown if user_value is MISSING else user_value,
            user_value=user_value,
            computed_value=computed_value,
            status=status,
            reason=reason,
            locked=locked,
            retry_at=entry[1] if entry else None,
            definition_version=version,
            computed_at=computed_at,
            provenance=provenance,
        )

    async def _cell_lines(
        self, collection_id: CollectionId, rows: Iterable[tuple[int, NewRow]]
    ) -> bytes:
        lines: list[bytes] = []
        for number, row in rows:
            for column_id, value in row.values.items():
                stored = (await self._large.store(value)).replace(b"\\", b"\\\\")
                lines.append(
                    b"%d\t%d\t%d\t%b\tready\n" % (number, collection_id, column_id, stored)
                )
        return b"".join(lines)

    async def _rows(self, query: str, params: Params) -> list[tuple[Any, ...]]:
        return await (await self._connection.execute(_SQL[query], params)).fetchall()

    async def _run(self, query: str, params: Params) -> None:
        await self._connection.execute(_SQL[query], params)


def _status(
    settled: CellStatus, reason: Mapping[str, JsonValue] | None, entry: tuple[str, Any] | None
) -> tuple[CellStatus, Mapping[str, JsonValue] | None]:
    """The status a person sees: the queue's word where the cell is unsettled."""
    if entry is None:
        return settled, None if settled is CellStatus.READY else reason
    if entry[0] == "retrying":
        return CellStatus.FAILED, reason
    if entry[0] == "blocked":
        return CellStatus.WAITING, {"code": "upstream_unsettled"}
    return CellStatus(entry[0]), None


def _field(text: str | None) -> str:
    """A text as a field of COPY; NUL, which Postgres cannot hold, becomes U+FFFD in a key."""
    if text is None:
        return r"\N"
    safe = text.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")
    return safe.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def _keys(collection_id: CollectionId, cells: Sequence[CellKey]) -> Params:
    return {
        "collection_id": collection_id,
        "rows": [cell.row_id for cell in cells],
        "columns": [cell.column_id for cell in cells],
    }
