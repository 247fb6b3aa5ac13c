"""Immediate fill: pure columns of new rows are computed by whoever dispatches them.

A cell that nothing is stored of, that nobody waits for, and whose kind calls nothing needs no
queue: under the collection's lock its signal, its claim and its result are one step.
Whatever is not that simple (a missing input, a failure, a value that Postgres refuses) is left to
the queue, with its whole row.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

import psycopg
import structlog

from everfill.autofill.calls import call_kind
from everfill.autofill.finalizer import CompletionSink
from everfill.autofill.inputs import Compute, Plan, decide, make_plan
from everfill.autofill.queue import ColumnSignal
from everfill.compute.protocol import ComputeContext, Value
from everfill.compute.registry import get_kind
from everfill.infra.blobs import Blobs
from everfill.infra.postgres import Connection, load_queries
from everfill.kernel import limits
from everfill.kernel.errors import EverfillError
from everfill.kernel.ids import CollectionId, ColumnId, RowId
from everfill.tables.cells import Cells, CellStatus, Input
from everfill.tables.schema import Column, Schema
from everfill.tables.types import TypeName
from everfill.tables.values import BlobRef, JsonValue, decode, encode

__all__ = ["Answer", "Filled", "Immediate", "New", "pure_plans"]

_LOG: Final = structlog.stdlib.get_logger()
_SQL: Final = load_queries("everfill.autofill", "immediate.sql")

_NEW: Final = frozenset({None, "empty", "unfinished"})
"""Dispatches that mean cells of which nothing is stored."""

_AS_WRITTEN: Final = frozenset(
    {
        TypeName.TEXT,
        TypeName.URL,
        TypeName.BOOLEAN,
        TypeName.CHOICE,
        TypeName.DATE,
        TypeName.DATETIME,
    }
)
"""Types whose values Postgres gives back letter by letter; numbers and keys it writes anew, and
whoever reads those must see, and hash, what it wrote."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """What was filled at once.

    Attributes:
        rows: The rows whose pure columns were filled, ascending.
        counts: Cells by column and status.
        rest: What is left to signal in those rows.
    """

    rows: Sequence[RowId] = ()
    counts: Mapping[tuple[ColumnId, str], int] = field(
        default_factory=dict[tuple[ColumnId, str], int]
    )
    rest: Sequence[ColumnSignal] = ()

    @property
    def cells(self) -> int:
        """How many cells were filled."""
        return sum(self.counts.values())

    def others(self, rows: Sequence[RowId]) -> Sequence[RowId]:
        """The rows that were not."""
        filled = frozenset(self.rows)
        return [row for row in rows if row not in filled] if filled else rows


class Answer(NamedTuple):
    """A cell's answer, encoded for Postgres."""

    row_id: RowId
    column_id: ColumnId
    version: int
    value: str
    input_hash: bytes


@dataclass(slots=True)
class New:
    """New rows, and what is known so far of the columns that are read, by column and row.

    Attributes:
        rows: Their numbers, ascending.
        inputs: As stored.
        values: Decoded, where there is something.
    """

    rows: list[RowId]
    inputs: dict[ColumnId, dict[RowId, Input]]
    values: dict[ColumnId, dict[RowId, JsonValue]]


class Immediate:
    """Fills pure columns of new rows inside a dispatch.

    Args:
        blobs: Where large values are.
        context: What kinds may use.
        sink: Told of the cells afterwards.
    """

    def __init__(self, *, blobs: Blobs, context: ComputeContext, sink: CompletionSink) -> None:
        self._blobs = blobs
        self._context = context
        self._sink = sink

    async def fill(
        self,
        connection: Connection,
        schema: Schema,
        rows: Sequence[RowId],
        signals: Sequence[ColumnSignal],
        plans: Sequence[Plan],
    ) -> Filled:
        """Fill what can be filled at once.

        Args:
            connection: In a transaction that holds the collection's lock.
            schema: The collection's columns, read in that transaction.
            rows: Existing rows.
            signals: The columns that a dispatch signals, in topological order.
            plans: Those that can be filled at once, as `pure_plans` found in that transaction.
        """
        if not plans or not rows:
            return Filled()
        collection_id = schema.collection_id
        done = {plan.column.column_id for plan in plans}
        watched = {signal.column_id for signal in signals} | _below(schema, done)
        try:
            async with connection.transaction():
                new = await self._read_new(connection, collection_id, rows, watched, plans)
                answers = await self._answer(new, plans)
                await _land(connection, collection_id, answers)
        except psycopg.DataError:  # a value that Postgres refuses: the queue finds out which
            _LOG.warning("immediate.refused", collection_id=collection_id, first_row=rows[0])
            return Filled()
        if not answers:
            return Filled()
        return Filled(
            rows=sorted({answer.row_id for answer in answers}),
            counts=Counter((answer.column_id, "ready") for answer in answers),
            rest=[
                replace(signal, explicit=True) for signal in signals if signal.column_id not in done
            ],
        )

    async def tell(self, collection_id: CollectionId, filled: Filled) -> None:
        """Tell whoever watches, after the commit; best effort."""
        if filled.counts:
            await self._sink.completed(collection_id, filled.counts, [])

    async def _answer(self, new: New, plans: Sequence[Plan]) -> list[Answer]:
        """The answers of the rows that have all of them, by row."""
        answers: list[Answer] = []
        for plan in plans:
            found = await self._compute(plan, new)
            new.rows = [answer.row_id for answer in found]
            answers += found
        whole = frozenset(new.rows)
        return sorted(answer for answer in answers if answer.row_id in whole)

    async def _read_new(
        self,
        connection: Connection,
        collection_id: CollectionId,
        rows: Sequence[RowId],
        watched: Iterable[ColumnId],
        plans: Sequence[Plan],
    ) -> New:
        """The rows of which nothing is stored or on its way in these columns, and their inputs."""
        params = {"collection_id": collection_id, "rows": list(rows), "columns": list(watched)}
        cursor = await connection.execute(_SQL["known_rows"], params)
        known = {row_id for (row_id,) in await cursor.fetchall()}
        read = {column.column_id for plan in plans for column in plan.upstreams}
        new = New(
            rows=[row for row in rows if row not in known],
            inputs={column_id: {} for column_id in read},
            values={column_id: {} for column_id in read},
        )
        if new.rows:
            await self._read_inputs(connection, collection_id, new)
        return new

    async def _read_inputs(
        self, connection: Connection, collection_id: CollectionId, new: New
    ) -> None:
        """Read what is stored of the columns; drops rows of which something has to be fetched."""
        cells = Cells(connection, self._blobs)
        inputs = await cells.read_inputs(collection_id, new.rows, sorted(new.inputs))
        large: set[RowId] = set()
        for (row, column_id), given in inputs.items():
            new.inputs[column_id][row] = given
            if given.value is None:
                continue
            value = decode(given.value)
            if isinstance(value, BlobRef):  # not under a lock
                large.add(row)
            else:
                new.values[column_id][row] = value
        if large:
            new.rows = [row for row in new.rows if row not in large]

    async def _compute(self, plan: Plan, new: New) -> list[Answer]:
        """The answers of one column; rows without one are left out. Notes them as inputs."""
        column_id, version = plan.column.column_id, plan.column.definition_version
        inputs = [new.inputs[column.column_id] for column in plan.upstreams]
        values = [new.values[column.column_id] for column in plan.upstreams]
        jobs: list[tuple[RowId, Compute]] = []
        chars = 0
        for row in new.rows:
            decision = decide(
                plan,
                None,
                [column.get(row) for column in inputs],
                [column.get(row) for column in values],
                forced=True,
            )
            if not isinstance(decision, Compute):
                continue
            chars += len(decision.request.text)
            if chars > limits.IMMEDIATE_CHARS_MAX:  # the rest is left to the queue
                break
            jobs.append((row, decision))
        read_inputs, read_values = new.inputs.get(column_id), new.values.get(column_id)
        answers: list[Answer] = []
        kind = get_kind(plan.kind.name)
        for start in range(0, len(jobs), plan.kind.batch_max):
            batch = jobs[start : start + plan.kind.batch_max]
            requests = [compute.request for _, compute in batch]
            try:
                async with asyncio.timeout(limits.IMMEDIATE_SECONDS_MAX):
                    results = await call_kind(kind, requests, self._context)
            except TimeoutError:  # not as pure as it says: not under a lock
                _LOG.warning("immediate.slow_kind", kind=plan.kind.name)
                break
            for (row, compute), result in zip(batch, results, strict=True):
                if not isinstance(result, Value) or result.usage:
                    continue  # what a call spent is recorded by the queue
                stored = _encode(result.value)
                if stored is None:
                    continue
                answers.append(Answer(row, column_id, version, stored, compute.input_hash))
                if read_inputs is not None and read_values is not None:
                    read_inputs[row] = Input(
                        value=stored,
                        status=CellStatus.READY,
                        overridden=False,
                        locked=False,
                        input_hash=compute.input_hash,
                        computed=True,
                    )
                    read_values[row] = result.value
        return answers


def pure_plans(schema: Schema, signals: Iterable[ColumnSignal], only: str | None) -> list[Plan]:
    """The columns that a dispatch may fill at once, in topological order.

    Their kind calls nothing, and whatever they read is an input column or one of them whose values
    need not be read back.

    Args:
        schema: The collection's columns.
        signals: What is dispatched of them.
        only: The status that the dispatch is restricted to: none, unless it means new cells.
    """
    if only not in _NEW:
        return []
    plans: dict[ColumnId, Plan] = {}
    for signal in signals:
        column = schema.by_id[signal.column_id]
        known = all(_is_input(schema, key) or _is_known(plans.get(key)) for key in column.upstreams)
        if known and (plan := _plan(schema, column)):
            plans[column.column_id] = plan
    return list(plans.values())


def _is_input(schema: Schema, column_id: ColumnId) -> bool:
    return schema.by_id[column_id].computation is None


def _below(schema: Schema, columns: set[ColumnId]) -> set[ColumnId]:
    """What reads these columns: should it hold an answer, the queue marks that as outdated."""
    return {
        column.column_id for column in schema.computed if columns.intersection(column.upstreams)
    }


def _is_known(plan: Plan | None) -> bool:
    return plan is not None and plan.column.type.name in _AS_WRITTEN


def _plan(schema: Schema, column: Column) -> Plan | None:
    """The plan of a pure column; None of any other, or of one whose kind is not installed."""
    assert column.computation, "only computed columns are signalled"
    try:
        spec = get_kind(column.computation.kind).spec
    except EverfillError:
        return None
    return make_plan(schema, column, spec) if spec.pure else None


def _encode(value: JsonValue) -> str | None:
    """A value's stored form; None where JSON cannot say it, or it is too large for its row."""
    try:
        stored = encode(value)
    except (ValueError, TypeError, RecursionError):
        return None
    return stored.decode() if len(stored) <= limits.BLOB_THRESHOLD_BYTES else None


async def _land(
    connection: Connection, collection_id: CollectionId, answers: Sequence[Answer]
) -> None:
    if not answers:
        return
    lines = [
        f"{answer.row_id}\t{collection_id}\t{answer.column_id}\t{_field(answer.value)}"
        f"\tready\t{answer.version}\tnow\t\\\\x{answer.input_hash.hex()}\n"
        for answer in answers
    ]
    async with connection.cursor().copy(_SQL["copy_answers_in"]) as copy:
        await copy.write("".join(lines))


def _field(stored: str) -> str:
    """JSON as a field of COPY: it holds no control characters, and escapes with backslashes."""
    return stored.replace("\\", "\\\\")
