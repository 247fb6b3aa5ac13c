"""Columns as their owners change them: each change checked by its kind before it is made.

A changed definition is a barrier: the queue lets no result of the old one land as current, and the
values that it left are outdated until somebody recomputes them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from everfill.autofill.queue import Queue
from everfill.compute.registry import get_kind
from everfill.infra.postgres import Pool
from everfill.kernel import limits
from everfill.kernel.errors import ConflictError, InvalidError
from everfill.kernel.ids import CollectionId, ColumnId
from everfill.tables import dag, templates
from everfill.tables.definitions import Definitions
from everfill.tables.schema import Column, Computation, Schedule, Schema
from everfill.tables.types import TEXT, ColumnType
from everfill.tables.values import JsonValue

__all__ = ["ColumnDraft", "ColumnKeeper", "order_drafts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnDraft:
    """A column as a person writes it down.

    Attributes:
        name: Its name.
        type: What it stores; None: what its kind makes, or text for an input column.
        kind: How it is computed; None: an input column.
        template: References by name; required with a kind.
        options: The kind's options.
        accepts_missing: Whether it runs although an input is missing.
        schedule: When it recomputes by itself.
    """

    name: str
    type: ColumnType | None = None
    kind: str | None = None
    template: str | None = None
    options: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])
    accepts_missing: bool = False
    schedule: Schedule = field(default_factory=Schedule)


class ColumnKeeper:
    """Adds, changes and drops columns."""

    def __init__(self, pool: Pool, queue: Queue) -> None:
        self._pool = pool
        self._queue = queue

    async def add(
        self, collection_id: CollectionId, draft: ColumnDraft, *, author: str
    ) -> ColumnId:
        """Add a column; a computed one is empty until it is dispatched.

        Raises:
            InvalidError: The kind refuses the definition, or a reference is unknown.
            ConflictError: `column_exists`.
        """
        type_, computation = resolve(draft)
        async with self._change(collection_id) as (definitions, schema):
            column_id = await definitions.add_column(schema, draft.name, type_, computation)
            await definitions.record_change(collection_id, author, "add_column", draft.name)
        return column_id

    async def add_inputs(
        self, collection_id: CollectionId, types: Mapping[str, ColumnType], *, author: str
    ) -> Mapping[str, ColumnId]:
        """Add the input columns that are missing, all or none; returns all that were asked for.

        Raises:
            ConflictError: `column_computed`.
            InvalidError: `columns_too_many`.
        """
        async with self._change(collection_id) as (definitions, schema):
            for name in types.keys() & schema.ids.keys():
                _check_input(schema.get(name))
            if len(types.keys() | schema.ids.keys()) > limits.COLUMNS_MAX:
                message = f"A collection holds at most {limits.COLUMNS_MAX} columns."
                raise InvalidError("columns_too_many", message)
            return {
                name: schema.ids.get(name)
                or await self._add_input(definitions, schema, name, type_, author)
                for name, type_ in types.items()
            }

    async def _add_input(
        self, definitions: Definitions, schema: Schema, name: str, type_: ColumnType, author: str
    ) -> ColumnId:
        column_id = await definitions.add_column(schema, name, type_)
        await definitions.record_change(schema.collection_id, author, "add_column", name)
        return column_id

    async def redefine(
        self, collection_id: CollectionId, name: str, draft: ColumnDraft, *, author: str
    ) -> bool:
        """Change a column's type, kind, template, options or schedule; its name stays.

        Returns:
            Whether the values it holds are outdated by it.

        Raises:
            InvalidError: Also where an input column would become computed or the reverse, or the
                references would form a circle.
        """
        type_, computation = resolve(draft)
        async with self._change(collection_id) as (definitions, schema):
            column = schema.get(name)
            _check_nature(column, computation)
            raised = await definitions.redefine_column(schema, column, type_, computation)
            await self._queue.rearrange(definitions.connection, collection_id, column.column_id)
            await definitions.record_change(collection_id, author, "redefine_column", name)
        return raised

    async def rename(
        self, collection_id: CollectionId, name: str, new_name: str, *, author: str
    ) -> None:
        """Rename a column; templates that read it follow."""
        async with self._change(collection_id) as (definitions, schema):
            await definitions.rename_column(schema, schema.get(name), new_name)
            await definitions.record_change(
                collection_id, author, "rename_column", [name, new_name]
            )

    async def drop(
        self, collection_id: CollectionId, name: str, *, cascade: bool, author: str
    ) -> Sequence[Column]:
        """Drop a column, with `cascade` also what depends on it; calls under way cannot land.

        Raises:
            ConflictError: `column_in_use`, with the names of its dependents.
        """
        async with self._change(collection_id) as (definitions, schema):
            dropped = await definitions.drop_column(schema, schema.get(name), cascade=cascade)
            await self._queue.drop_columns(
                definitions.connection, collection_id, [column.column_id for column in dropped]
            )
            names: list[JsonValue] = [column.name for column in dropped]
            await definitions.record_change(collection_id, author, "drop_column", names)
        return dropped

    async def ensure(
        self, collection_id: CollectionId, drafts: Sequence[ColumnDraft], *, author: str
    ) -> list[ColumnId]:
        """Make computed columns be as drafted: add what is missing, redefine what differs.

        Drafts may refer to each other in any order that has no circle.
        """
        ids: list[ColumnId] = []
        for draft in order_drafts(drafts):
            async with self._pool.connection() as connection:
                schema = await Definitions(connection).load_schema(collection_id)
            if draft.name not in schema.ids:
                ids.append(await self.add(collection_id, draft, author=author))
                continue
            column = schema.get(draft.name)
            if _differs(schema, column, draft):
                await self.redefine(collection_id, draft.name, draft, author=author)
            ids.append(column.column_id)
        return ids

    @asynccontextmanager
    async def _change(
        self, collection_id: CollectionId
    ) -> AsyncGenerator[tuple[Definitions, Schema], None]:
        async with self._pool.connection() as connection, connection.transaction():
            await self._queue.lock(connection, collection_id)
            definitions = Definitions(connection)
            yield definitions, await definitions.lock_schema(collection_id)


def resolve(draft: ColumnDraft) -> tuple[ColumnType, Computation | None]:
    """The type and computation of a draft, checked by its kind; the template still by name.

    Raises:
        InvalidError: `kind_unknown`, `template_missing`, or what the kind refuses.
    """
    if draft.kind is None:
        return draft.type or TEXT, None
    if not (draft.template or "").strip():
        raise InvalidError(
            "template_missing",
            f"Column {draft.name!r} of kind {draft.kind} has no template.",
            hint="Say what it reads, such as {{review}}.",
        )
    kind = get_kind(draft.kind)
    type_ = draft.type or kind.spec.default_type
    kind.check(type_, draft.options)
    return type_, Computation(
        kind=draft.kind,
        template=draft.template or "",
        cost_class=kind.spec.cost_class,
        options=draft.options,
        accepts_missing=draft.accepts_missing,
        schedule=draft.schedule,
    )


def order_drafts(drafts: Sequence[ColumnDraft]) -> list[ColumnDraft]:
    """Drafts after those they refer to; in the order given, where that is such an order.

    Raises:
        InvalidError: `column_twice`, or `cycle` where they refer to each other in a circle.
    """
    ids = {draft.name: ColumnId(number) for number, draft in enumerate(drafts)}
    if len(ids) < len(drafts):
        twice = next(name for name, n in Counter(draft.name for draft in drafts).items() if n > 1)
        message = f"Column {twice!r} is given twice."
        raise InvalidError("column_twice", message, hint="Give one of them another name.")
    reads = {
        ids[draft.name]: [
            ids[name] for name in templates.mentions(draft.template or "") if name in ids
        ]
        for draft in drafts
    }
    dag.check_acyclic(reads, {number: name for name, number in ids.items()})
    left, placed = list(drafts), list[ColumnDraft]()
    while left:
        names = {draft.name for draft in left}
        free = (n for n, d in enumerate(left) if not names & templates.mentions(d.template or ""))
        placed.append(left.pop(next(free)))
    return placed


def _check_input(column: Column) -> None:
    if column.computation:
        raise ConflictError(
            "column_computed",
            f"The input has a column {column.name!r}, which is computed in this collection.",
            hint="Rename one of them, or import into another collection (--collection).",
        )


def _check_nature(column: Column, computation: Computation | None) -> None:
    if (column.computation is None) != (computation is None):
        raise InvalidError(
            "column_nature",
            f"Column {column.name!r} cannot change between input and computed.",
            hint="Add a new column instead.",
        )


def _differs(schema: Schema, column: Column, draft: ColumnDraft) -> bool:
    type_, wanted = resolve(draft)
    present = column.computation
    if present:
        present = replace(present, template=schema.template_of(column) or "")
    return (type_, wanted) != (column.type, present)
