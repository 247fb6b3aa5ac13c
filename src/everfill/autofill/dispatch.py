"""Dispatch: the one primitive that asks for a recompute, whoever asks.

One cell or ten million, by hand or because an input changed: it always ends in `Queue.signal`. Few
cells go into the interactive lane in one transaction. Many become a *run*: a durable record that is
signalled chunk by chunk, in constant memory and without holding a lock for long, and that the
janitor finishes should the dispatcher die.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, Final, Protocol

from everfill.autofill.immediate import Filled, Immediate, pure_plans
from everfill.autofill.queue import QUERIES, ColumnSignal, Queue
from everfill.infra.blobs import Blobs
from everfill.infra.postgres import Connection, Pool, load_queries, persist
from everfill.kernel import limits
from everfill.kernel.errors import InvalidError
from everfill.kernel.ids import CellKey, CollectionId, ColumnId, RowId, RunId
from everfill.tables.cells import Cells
from everfill.tables.definitions import Definitions
from everfill.tables.schema import Column, Schema

__all__ = ["Announcer", "Dispatched", "Dispatcher", "Lane", "Only", "Request"]

_SQL: Final = load_queries("everfill.autofill", "dispatch.sql")


class Lane(StrEnum):
    """How urgent a dispatch is."""

    INTERACTIVE = "interactive"
    BULK = "bulk"


class Only(StrEnum):
    """Restricts a dispatch to cells of one status; cells already on their way are left alone."""

    FAILED = "failed"
    OUTDATED = "outdated"
    NOT_FOUND = "not_found"
    EMPTY = "empty"
    UNFINISHED = "unfinished"
    """Empty, waiting, outdated or failed: everything that is not an answer to its inputs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What to recompute, and on whose behalf.

    Attributes:
        collection_id: In which collection.
        columns: Which computed columns; None: all.
        rows: Which rows; None: all.
        only: Restrict to a status.
        force: Discard the values: compute although the inputs did not change.
        lane: How urgent; None: interactive for few cells, else bulk.
        author: Who asks (`person:…`, `agent:…`, `source:…`, `system`).
        reason: Why (`edit`, `reprocess`, `import`, `cron`, …).
        weight: Of a bulk run against the others.
    """

    collection_id: CollectionId
    columns: Sequence[ColumnId] | None = None
    rows: Sequence[RowId] | None = None
    only: Only | None = None
    force: bool = False
    lane: Lane | None = None
    author: str = "system"
    reason: str = "reprocess"
    weight: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatched:
    """What a dispatch did.

    Attributes:
        cells: Signalled, or filled at once.
        filled: Those that were filled at once.
        run_id: Its run, where it was a bulk one.
    """

    cells: int
    filled: int = 0
    run_id: RunId | None = None


class Announcer(Protocol):
    """Tells the setup workflow of a collection that there is work; best effort, coalesced."""

    async def announce(self, collection_id: CollectionId) -> None:
        """Must not raise: the janitor starts what an announcement missed."""
        ...


class Dispatcher:
    """Turns requests and edits into signals.

    Args:
        pool: Connections to Postgres.
        queue: Takes the signals.
        blobs: Where large values are.
        announcer: Told that there is work.
        immediate: Fills what needs no queue; None: everything goes by the queue.
    """

    def __init__(
        self,
        pool: Pool,
        queue: Queue,
        blobs: Blobs,
        announcer: Announcer,
        immediate: Immediate | None = None,
    ) -> None:
        self._pool = pool
        self._queue = queue
        self._blobs = blobs
        self._announcer = announcer
        self._immediate = immediate

    async def dispatch(self, request: Request) -> Dispatched:
        """Recompute what the request names, and what depends on it where it changes.

        Raises:
            NotFoundError: The collection or a column does not exist.
            InvalidError: A column is not computed, or too many rows were named one by one.
        """
        async with self._pool.connection() as connection:
            schema = await Definitions(connection).load_schema(request.collection_id)
        columns = _explicit(schema, request.columns)
        if not columns:
            return Dispatched(cells=0)
        if _is_interactive(request, len(columns)):
            assert request.rows is not None, "a request without rows is a bulk one"
            return await self._dispatch_rows(request, columns, request.rows)
        return await self.finish(await self._start_run(request, columns))

    async def start_run(self, connection: Connection, request: Request) -> RunId | None:
        """Record a bulk run inside the caller's transaction; it is signalled by `advance`.

        Should the caller die after its commit, the janitor goes on with the run.

        Returns:
            The run; None where the request names no computed column.
        """
        schema = await Definitions(connection).load_schema(request.collection_id)
        columns = _explicit(schema, request.columns)
        return await self._record_run(connection, request, columns) if columns else None

    async def advance(self, run_id: RunId) -> Dispatched | None:
        """Signal the next chunk of a run, in one transaction; None when nothing is left."""
        async with self._pool.connection() as connection, connection.transaction():
            collection_id = await self._run_collection(connection, run_id)
            if collection_id is None:
                return None
            await self._queue.lock(connection, collection_id)
            cursor = await connection.execute(_SQL["lock_run"], {"run_id": run_id})
            run = await cursor.fetchone()
            if run is None:
                return None
            cells, filled = await self._signal_chunk(connection, run_id, run)
        if self._immediate:
            await self._immediate.tell(collection_id, filled)
        await self._announcer.announce(collection_id)
        return Dispatched(cells=cells, filled=filled.cells, run_id=run_id)

    async def finish(self, run_id: RunId) -> Dispatched:
        """Signal all that is left of a run, chunk by chunk."""
        cells = filled = 0
        while chunk := await persist(partial(self.advance, run_id)):
            cells += chunk.cells
            filled += chunk.filled
        return Dispatched(cells=cells, filled=filled, run_id=run_id)

    async def finish_stalled(self, *, idle_seconds: float) -> int:
        """Signal what is left of runs whose dispatcher has gone; returns the number of cells."""
        async with self._pool.connection() as connection:
            cursor = await connection.execute(
                _SQL["stalled_runs"],
                {"idle_seconds": idle_seconds, "future_seconds": limits.FUTURE_SECONDS_MAX},
            )
            runs = [RunId(row[0]) for row in await cursor.fetchall()]
        return sum([(await self.finish(run_id)).cells for run_id in runs])

    async def finish_runs(self, collection_id: CollectionId) -> int:
        """Signal what is left of a collection's runs, whoever else is at it; returns the cells.

        A dispatcher that still lives finds its run done.
        """
        async with self._pool.connection() as connection:
            cursor = await connection.execute(
                _SQL["undispatched_runs"], {"collection_id": collection_id}
            )
            runs = [RunId(row[0]) for row in await cursor.fetchall()]
        return sum([(await self.finish(run_id)).cells for run_id in runs])

    async def cancel(self, collection_id: CollectionId, run_id: RunId) -> int:
        """Take what only this run wanted, and nobody has started, out of the queue.

        What was signalled by somebody else meanwhile goes on. A cell that then is no longer the
        newest says so.

        Returns:
            The number of cells taken out.
        """
        async with self._pool.connection() as connection, connection.transaction():
            await self._queue.lock(connection, collection_id)
            await connection.execute(QUERIES["lock_claims"])
            cursor = await connection.execute(_SQL["cancel_run"], {"run_id": run_id})
            row = await cursor.fetchone()
            assert row is not None, "an aggregate always gives a row"
            cells, rows, columns = row
            freed = [CellKey(*key) for key in zip(rows, columns, strict=True)]
            await self._queue.release(connection, collection_id, freed)
        return cells

    async def set_paused(self, run_id: RunId, *, paused: bool) -> None:
        """Hold a run back, or let it go on; calls under way end."""
        async with self._pool.connection() as connection, connection.transaction():
            await connection.execute(QUERIES["lock_claims"])
            await connection.execute(_SQL["set_paused"], {"run_id": run_id, "paused": paused})
            await connection.execute(QUERIES["notify"])

    async def follow(
        self, connection: Connection, schema: Schema, changed: Sequence[CellKey]
    ) -> int:
        """Signal everything downstream of changed cells, inside the transaction that changed them.

        Columns that recompute only by hand or by the clock are marked outdated instead; where
        somebody has asked for one and it is on its way, it is signalled like the others.
        """
        cells = 0
        for roots, rows in _by_columns(changed).items():
            automatic, manual = _followers(schema, roots)
            cells += await self._queue.signal(
                connection, schema.collection_id, rows, _signals([], automatic, force=False)
            )
            if manual:
                await Cells(connection, self._blobs).mark_outdated(
                    schema.collection_id,
                    [CellKey(row, column.column_id) for row in rows for column in manual],
                )
                cells += await self._queue.signal(
                    connection,
                    schema.collection_id,
                    rows,
                    _signals(manual, [], force=False),
                    only="unsettled",
                )
        return cells

    async def announce(self, collection_id: CollectionId) -> None:
        """Tell the collection's setup workflow that there is work, after a commit."""
        await self._announcer.announce(collection_id)

    async def _dispatch_rows(
        self, request: Request, columns: Sequence[Column], rows: Sequence[RowId]
    ) -> Dispatched:
        async with self._pool.connection() as connection, connection.transaction():
            await self._queue.lock(connection, request.collection_id)
            schema = await Definitions(connection).load_schema(request.collection_id)
            existing = await Cells(connection, self._blobs).existing_rows(
                request.collection_id, rows
            )
            cells = await self._queue.signal(
                connection,
                request.collection_id,
                sorted(existing),
                _plan(schema, [column.column_id for column in columns], force=request.force),
                only=request.only,
            )
        await self._announcer.announce(request.collection_id)
        return Dispatched(cells=cells)

    async def _start_run(self, request: Request, columns: Sequence[Column]) -> RunId:
        if request.rows is not None and len(request.rows) > limits.RUN_ROWS_MAX:
            message = f"A dispatch names at most {limits.RUN_ROWS_MAX} rows one by one."
            raise InvalidError("rows_too_many", message, hint="Name fewer, or dispatch all rows.")
        async with self._pool.connection() as connection:
            return await self._record_run(connection, request, columns)

    async def _record_run(
        self, connection: Connection, request: Request, columns: Sequence[Column]
    ) -> RunId:
        last = await Cells(connection, self._blobs).last_row(request.collection_id)
        cursor = await connection.execute(
            _SQL["start_run"],
            {
                "collection_id": request.collection_id,
                "author": request.author,
                "reason": request.reason,
                "columns": [column.column_id for column in columns],
                "only": request.only,
                "forced": request.force,
                "rows": None if request.rows is None else sorted(set(request.rows)),
                "last_row_id": last if request.rows is None else max(request.rows, default=0),
                "weight": request.weight,
            },
        )
        row = await cursor.fetchone()
        assert row is not None, "an insert returns its row"
        return RunId(row[0])

    async def _run_collection(self, connection: Connection, run_id: RunId) -> CollectionId | None:
        cursor = await connection.execute(_SQL["run_collection"], {"run_id": run_id})
        row = await cursor.fetchone()
        return row[0] if row else None

    async def _signal_chunk(
        self, connection: Connection, run_id: RunId, run: Sequence[Any]
    ) -> tuple[int, Filled]:
        collection_id, column_ids, only, forced, first, last, named = run
        schema = await Definitions(connection).load_schema(collection_id)
        alive = [key for key in column_ids if key in schema.by_id]
        plan = _plan(schema, alive, force=forced) if alive else []
        pure = pure_plans(schema, plan, only) if self._immediate else []
        cells_max = limits.IMMEDIATE_CHUNK_CELLS if pure else limits.DISPATCH_CHUNK_CELLS
        count_max = max(1, cells_max // max(1, len(plan)))
        params = {
            "run_id": run_id,
            "collection_id": collection_id,
            "from": first,
            "to": last,
            "count_max": count_max,
        }
        query = "run_named_rows" if named else "run_rows"
        found = await (await connection.execute(_SQL[query], params)).fetchall()
        rows = [RowId(row[0]) for row in found]
        filled = Filled()
        if self._immediate:
            filled = await self._immediate.fill(connection, schema, rows, plan, pure)
        cells = filled.cells
        cells += await self._queue.signal(
            connection, collection_id, filled.rows, filled.rest, run_id=run_id
        )
        cells += await self._queue.signal(
            connection, collection_id, filled.others(rows), plan, run_id=run_id, only=only
        )
        await connection.execute(
            _SQL["advance_run"],
            {
                "run_id": run_id,
                "next_row_id": rows[-1] + 1 if rows else last + 1,
                "cells": cells,
                "done": len(rows) < count_max,
            },
        )
        return cells, filled


def _is_interactive(request: Request, columns: int) -> bool:
    if request.rows is None or request.lane is Lane.BULK:
        return False
    return len(request.rows) * columns <= limits.INTERACTIVE_CELLS_MAX


def _explicit(schema: Schema, wanted: Sequence[ColumnId] | None) -> list[Column]:
    """The computed columns a request names, in topological order."""
    if wanted is None:
        return list(schema.computed)
    for column_id in wanted:
        column = schema.by_id.get(column_id)
        if column is None or column.computation is None:
            name = column.name if column else column_id
            raise InvalidError(
                "column_not_computed",
                f"Column {name!r} is not a computed one.",
                hint="Only computed columns can be reprocessed.",
            )
    return [column for column in schema.computed if column.column_id in wanted]


def _plan(schema: Schema, explicit: Sequence[ColumnId], *, force: bool) -> list[ColumnSignal]:
    """The columns to signal, in topological order: those asked for, and what follows them."""
    automatic, _ = _followers(schema, explicit)
    signals = _signals([schema.by_id[key] for key in explicit], automatic, force=force)
    by_id = {signal.column_id: signal for signal in signals}
    return [by_id[column.column_id] for column in schema.computed if column.column_id in by_id]


def _followers(schema: Schema, roots: Sequence[ColumnId]) -> tuple[list[Column], list[Column]]:
    """What recomputes by itself when the roots change, and what is only marked outdated.

    A root below another is among them: it has to wait for what lies between.
    """
    below = _below(schema, roots)
    manual: list[Column] = []
    for column in below:
        assert column.computation, "what depends on a column is computed"
        if column.computation.schedule.mode != "on_change":
            manual.append(column)
    halted = {column.column_id for column in manual} - set(roots)
    reached = set(roots)
    automatic: list[Column] = []
    for column in below:
        if column.column_id not in halted and reached.intersection(column.upstreams):
            reached.add(column.column_id)
            automatic.append(column)
    stale = [column for column in manual if reached.intersection(column.upstreams)]
    return automatic, stale


def _below(schema: Schema, roots: Sequence[ColumnId]) -> list[Column]:
    """Everything that depends on one of the roots, in topological order."""
    reached = set(roots)
    found: list[Column] = []
    for column in schema.computed:
        if reached.intersection(column.upstreams):
            reached.add(column.column_id)
            found.append(column)
    return found


def _signals(
    explicit: Sequence[Column], automatic: Sequence[Column], *, force: bool
) -> list[ColumnSignal]:
    asked = {column.column_id for column in explicit}
    following = [column for column in automatic if column.column_id not in asked]
    return [
        ColumnSignal(
            column_id=column.column_id,
            cost_class=column.computation.cost_class,
            explicit=not asked or column.column_id in asked,
            forced=force and column.column_id in asked,
        )
        for column in (*explicit, *following)
        if column.computation
    ]


def _by_columns(cells: Sequence[CellKey]) -> dict[tuple[ColumnId, ...], list[RowId]]:
    """Rows by the set of columns that changed in them."""
    columns: dict[RowId, set[ColumnId]] = {}
    for cell in cells:
        columns.setdefault(cell.row_id, set()).add(cell.column_id)
    grouped: dict[tuple[ColumnId, ...], list[RowId]] = {}
    for row_id in sorted(columns):
        grouped.setdefault(tuple(sorted(columns[row_id])), []).append(row_id)
    return grouped
