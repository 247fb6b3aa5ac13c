"""The repository of namespaces, collections and columns.

It checks what belongs to tables alone: names, references, cycles, dependents. Whether a kind can
compute what a column asks is checked above, before the column comes here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

import msgspec
from cronsim import CronSim, CronSimError

from everfill.infra.postgres import Connection, load_queries
from everfill.kernel import limits
from everfill.kernel.errors import ConflictError, InvalidError, NotFoundError
from everfill.kernel.ids import CollectionId, ColumnId, NamespaceId
from everfill.tables import dag, templates
from everfill.tables.schema import Collection, Column, Computation, Schedule, Schema
from everfill.tables.types import ColumnType, TypeName
from everfill.tables.values import JsonValue

__all__ = ["Definitions", "check_name"]

_SQL: Final = load_queries("everfill.tables", "definitions.sql")
_UNSTORABLE: Final = re.compile(r"(?<!\\)(?:\\\\)*\\u0000|[\ud800-\udfff]")  # as JSON
_ANY_TIME: Final = datetime(2026, 1, 1, tzinfo=UTC)  # to try a cron expression on

Params: TypeAlias = "dict[str, Any]"


class Definitions:
    """Namespaces, collections and columns, over the caller's connection and transaction."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    async def ensure_namespace(
        self, name: str, *, cap_cells: int = limits.NAMESPACE_CAP_CELLS
    ) -> NamespaceId:
        """The namespace of a name, made where it is missing."""
        check_name("namespace", name)
        params: Params = {"name": name, "cap_cells": cap_cells}
        found = await self._rows("ensure_namespace", params)
        if not found:  # another made it in this instant: the next statement sees it
            found = await self._rows("ensure_namespace", params)
        return NamespaceId(found[0][0])

    async def update_namespace(
        self, name: str, *, cap_cells: int | None = None, weight: float | None = None
    ) -> None:
        """Change a namespace's cap on cells in flight, or its weight against the others."""
        await self._run(
            "update_namespace", {"name": name, "cap_cells": cap_cells, "weight": weight}
        )

    async def create_collection(
        self, namespace: str, name: str, *, cap_cells: int = limits.COLLECTION_CAP_CELLS
    ) -> Collection:
        """Make an empty collection.

        Raises:
            ConflictError: `collection_exists`.
            InvalidError: `name_invalid`.
        """
        check_name("collection", name)
        params: Params = {
            "namespace_id": await self.ensure_namespace(namespace),
            "name": name,
            "cap_cells": cap_cells,
        }
        made = await self._rows("create_collection", params)
        if not made:
            raise ConflictError(
                "collection_exists",
                f"Namespace {namespace!r} already has a collection {name!r}.",
                hint="Take another name.",
            )
        return await self.get_collection_by_id(made[0][0])

    async def find_collection(self, namespace: str, name: str) -> Collection | None:
        """A collection by name, or None."""
        found = await self._collections(namespace=namespace, name=name)
        return found[0] if found else None

    async def get_collection(self, namespace: str, name: str) -> Collection:
        """A collection by name.

        Raises:
            NotFoundError: `collection_unknown`.
        """
        found = await self.find_collection(namespace, name)
        if found is None:
            raise NotFoundError(
                "collection_unknown",
                f"There is no collection {name!r} in namespace {namespace!r}.",
                hint="List them with `everfill collection list`.",
            )
        return found

    async def get_collection_by_id(self, collection_id: CollectionId) -> Collection:
        """A collection by id; raises NotFoundError `collection_unknown`."""
        found = await self._collections(collection_id=collection_id)
        if not found:
            raise _gone(collection_id)
        return found[0]

    async def list_collections(self, namespace: str | None = None) -> list[Collection]:
        """All collections (of a namespace), by name."""
        return await self._collections(namespace=namespace)

    async def update_collection(
        self,
        collection_id: CollectionId,
        *,
        name: str | None = None,
        cap_cells: int | None = None,
        source: Mapping[str, JsonValue] | None = None,
    ) -> None:
        """Rename a collection, set its cap, or note what was imported into it."""
        if name is not None:
            check_name("collection", name)
        params: Params = {
            "collection_id": collection_id,
            "name": name,
            "cap_cells": cap_cells,
            "source": None if source is None else _json(source),
        }
        await self._run("update_collection", params)

    async def delete_collection(self, collection_id: CollectionId) -> None:
        """Delete a collection with everything in it."""
        await self._run("delete_collection", {"collection_id": collection_id})

    async def load_schema(self, collection_id: CollectionId) -> Schema:
        """The columns as they are now; raises NotFoundError `collection_unknown`."""
        version = await self.schema_version(collection_id)
        rows = await self._rows("columns", {"collection_id": collection_id})
        return Schema(
            collection_id=collection_id,
            version=version,
            columns=tuple(_column(row) for row in rows),
        )

    async def schema_version(self, collection_id: CollectionId) -> int:
        """Grows with every change of the columns; raises NotFoundError `collection_unknown`."""
        found = await self._rows("schema_version", {"collection_id": collection_id})
        if not found:
            raise _gone(collection_id)
        return found[0][0]

    async def lock_schema(self, collection_id: CollectionId) -> Schema:
        """The columns, which nobody else can change until the transaction ends."""
        await self._run("lock_schema", {"collection_id": collection_id})
        return await self.load_schema(collection_id)

    async def add_column(
        self,
        schema: Schema,
        name: str,
        type: ColumnType,  # noqa: A002 - the field's standard term
        computation: Computation | None = None,
    ) -> ColumnId:
        """Add a column at the end.

        Args:
            schema: From `lock_schema`.
            name: Free in the collection.
            type: What it stores.
            computation: How it is filled; its template is by name, not yet bound.

        Raises:
            ConflictError: `column_exists`.
            InvalidError: A bad name, reference, schedule, or too many columns.
        """
        check_name("column", name)
        _check_free(schema, name)
        if len(schema.columns) >= limits.COLUMNS_MAX:
            message = f"A collection holds at most {limits.COLUMNS_MAX} columns."
            raise InvalidError("columns_too_many", message)
        bound = _bind(schema, computation)
        params = _definition(type, bound) | {"collection_id": schema.collection_id, "name": name}
        column_id = ColumnId((await self._rows("add_column", params))[0][0])
        await self._set_references(schema.collection_id, column_id, bound)
        await self._changed(schema.collection_id)
        return column_id

    async def redefine_column(
        self,
        schema: Schema,
        column: Column,
        type: ColumnType,  # noqa: A002 - the field's standard term
        computation: Computation | None,
    ) -> bool:
        """Change what a column stores or how it is filled; tells whether values are outdated by it.

        Raises:
            InvalidError: `cycle` with its path, or a bad reference or schedule.
            ConflictError: `column_in_use`, where a retype would break what reads it.
        """
        bound = _bind(schema, computation)
        self._check_retype(schema, column, type)
        _check_cycle(schema, column, bound)
        raised = type != column.type or not _same_answers(column.computation, bound)
        params = _definition(type, bound) | {"column_id": column.column_id, "raise": int(raised)}
        await self._run("redefine_column", params)
        await self._set_references(schema.collection_id, column.column_id, bound)
        await self._changed(schema.collection_id)
        return raised

    async def rename_column(self, schema: Schema, column: Column, name: str) -> None:
        """Give a column another name; references are by id and follow.

        Raises:
            ConflictError: `column_exists`.
            InvalidError: `name_invalid`.
        """
        check_name("column", name)
        if name != column.name:
            _check_free(schema, name)
            await self._run("rename_column", {"column_id": column.column_id, "name": name})
            await self._changed(schema.collection_id)

    async def drop_column(self, schema: Schema, column: Column, *, cascade: bool) -> list[Column]:
        """Drop a column, with `cascade` also all that depends on it; returns what was dropped.

        Raises:
            ConflictError: `column_in_use`, with the names of its dependents.
        """
        dependents = schema.downstream([column.column_id])
        if dependents and not cascade:
            raise _in_use("dropped", column, schema.dependents(column.column_id))
        dropped = [column, *dependents]
        params: Params = {
            "collection_id": schema.collection_id,
            "columns": [item.column_id for item in dropped],
        }
        await self._run("drop_column_cells", params)
        await self._run("drop_columns", params)
        await self._changed(schema.collection_id)
        return dropped

    async def duplicate(self, source: Collection, name: str) -> Collection:
        """Copy a collection: columns, rows and values; references point to the copy's columns.

        Raises:
            ConflictError: `collection_exists`.
        """
        schema = await self.lock_schema(source.collection_id)
        copy = await self.create_collection(source.namespace, name, cap_cells=source.cap_cells)
        ids: dict[ColumnId, ColumnId] = {}
        for key in dag.topological_order(schema.upstreams):
            ids[key] = await self._copy_column(copy.collection_id, schema.by_id[key], ids)
        await self._copy_positions(schema, ids)
        params: Params = {
            "collection_id": source.collection_id,
            "target_id": copy.collection_id,
            "columns": list(ids),
            "targets": list(ids.values()),
        }
        for query in ("copy_rows", "copy_cells", "copy_row_tail"):
            await self._run(query, params)
        return copy

    async def record_change(
        self, collection_id: CollectionId, author: str, action: str, detail: JsonValue = None
    ) -> None:
        """Note who changed what."""
        params: Params = {
            "collection_id": collection_id,
            "author": author,
            "action": action,
            "detail": _json({} if detail is None else detail),
        }
        await self._run("record_change", params)

    async def list_changes(
        self, collection_id: CollectionId, *, count_max: int = 50
    ) -> list[tuple[Any, ...]]:
        """The newest changes first: author, action, detail, time."""
        return await self._rows("changes", {"collection_id": collection_id, "count_max": count_max})

    async def _copy_column(
        self, collection_id: CollectionId, column: Column, ids: Mapping[ColumnId, ColumnId]
    ) -> ColumnId:
        computation = column.computation
        if computation:
            template = templates.repoint(computation.template, ids)
            computation = replace(computation, template=template)
        params = _definition(column.type, computation) | {
            "collection_id": collection_id,
            "name": column.name,
        }
        column_id = ColumnId((await self._rows("add_column", params))[0][0])
        await self._set_references(collection_id, column_id, computation)
        return column_id

    async def _copy_positions(self, schema: Schema, ids: Mapping[ColumnId, ColumnId]) -> None:
        await self._run(
            "set_positions",
            {
                "columns": [ids[column.column_id] for column in schema.columns],
                "positions": [column.position for column in schema.columns],
            },
        )

    async def _set_references(
        self, collection_id: CollectionId, column_id: ColumnId, computation: Computation | None
    ) -> None:
        upstreams = templates.references(computation.template) if computation else ()
        await self._run(
            "set_references",
            {
                "collection_id": collection_id,
                "column_id": column_id,
                "upstreams": list(upstreams),
            },
        )

    def _check_retype(self, schema: Schema, column: Column, wanted: ColumnType) -> None:
        """A column that others read keeps its nature: text stays text, a file stays a file."""
        dependents = schema.dependents(column.column_id)
        if dependents and wanted.name is not column.type.name:
            raise _in_use("retyped", column, dependents)

    async def _changed(self, collection_id: CollectionId) -> None:
        await self._run("raise_schema_version", {"collection_id": collection_id})

    async def _collections(
        self,
        *,
        namespace: str | None = None,
        name: str | None = None,
        collection_id: CollectionId | None = None,
    ) -> list[Collection]:
        if _UNSTORABLE.search(json.dumps([namespace, name], ensure_ascii=False)):
            return []
        params: Params = {"namespace": namespace, "name": name, "collection_id": collection_id}
        return [
            Collection(
                collection_id=row[0],
                namespace_id=row[1],
                namespace=row[2],
                name=row[3],
                cap_cells=row[4],
                schema_version=row[5],
                source=row[6],
                created_at=row[7],
            )
            for row in await self._rows("find_collections", params)
        ]

    async def _rows(self, query: str, params: Params) -> list[tuple[Any, ...]]:
        return await (await self.connection.execute(_SQL[query], params)).fetchall()

    async def _run(self, query: str, params: Params) -> None:
        await self.connection.execute(_SQL[query], params)


def _gone(collection_id: CollectionId) -> NotFoundError:
    return NotFoundError(
        "collection_unknown",
        f"There is no collection of number {collection_id}.",
        hint="Somebody may have deleted it meanwhile.",
    )


def check_name(noun: str, name: str) -> None:
    """Refuse a name that a person could not read, type or refer to.

    Raises:
        InvalidError: `name_invalid`.
    """
    problem = None
    if not name or name != name.strip():
        problem = "is blank or has blanks at an end"
    elif len(name) > limits.NAME_CHARS_MAX:
        problem = f"is longer than {limits.NAME_CHARS_MAX} characters"
    elif not name.isprintable():
        problem = "has characters that cannot be shown"
    elif noun != "column" and "/" in name:
        problem = "holds a slash, which stands between namespace and collection"
    elif "{{" in name or "}}" in name:
        problem = "holds {{ or }}, which stand for references"
    if problem:
        raise InvalidError("name_invalid", f"The {noun} name {name[:60]!r} {problem}.")


def _check_free(schema: Schema, name: str) -> None:
    if name in schema.ids:
        raise ConflictError(
            "column_exists",
            f"There already is a column {name!r}.",
            hint="Take another name, or change that one: `everfill column set`.",
        )


def _check_cycle(schema: Schema, column: Column, bound: Computation | None) -> None:
    reads = templates.references(bound.template) if bound else ()
    dag.check_acyclic({**schema.upstreams, column.column_id: reads}, schema.names)


def _bind(schema: Schema, computation: Computation | None) -> Computation | None:
    if computation is None:
        return None
    _check_schedule(computation.schedule)
    _check_storable("template", computation.template)
    _check_storable("options", computation.options)
    return replace(computation, template=templates.bind(computation.template, schema.ids))


def _check_storable(noun: str, value: object) -> None:
    """Refuse what Postgres cannot hold: NUL, and halves of surrogate pairs."""
    if _UNSTORABLE.search(json.dumps(value, ensure_ascii=False, default=str)):
        message = f"The {noun} holds a NUL character, or bytes that are no UTF-8."
        raise InvalidError("text_unstorable", message, hint="Take them out.")


def _check_schedule(schedule: Schedule) -> None:
    if schedule.mode not in {"on_change", "never", "cron"}:
        raise InvalidError(
            "schedule_invalid",
            f"The schedule {schedule.mode!r} is not known.",
            hint="Write on_change, never, or cron with an expression.",
        )
    if schedule.mode == "cron":
        _check_cron(schedule.cron or "")


def _check_cron(expression: str) -> None:
    try:
        next(CronSim(expression, _ANY_TIME))
    except (CronSimError, StopIteration) as error:
        raise InvalidError(
            "cron_invalid",
            f"The cron expression {expression!r} is not valid: {error or 'it never comes'}.",
            hint="Write five fields: minute hour day month weekday.",
        ) from None


def _same_answers(old: Computation | None, new: Computation | None) -> bool:
    """Whether two definitions give the same values for the same inputs."""
    if old is None or new is None:
        return old is new
    return replace(old, schedule=new.schedule, accepts_missing=new.accepts_missing) == new


def _in_use(verb: str, column: Column, dependents: Iterable[Column]) -> ConflictError:
    names = ", ".join(item.name for item in dependents)
    hint = "Change them first" + (
        ", or drop them with it (--cascade)." if verb == "dropped" else "."
    )
    return ConflictError(
        "column_in_use", f"{column.name!r} cannot be {verb}: {names} read it.", hint=hint
    )


def _definition(type_: ColumnType, computation: Computation | None) -> Params:
    params: Params = {
        "type": _json(msgspec.to_builtins(type_)),
        "kind": None,
        "template": None,
        "options": "{}",
        "cost_class": None,
        "accepts_missing": False,
        "schedule": "on_change",
        "cron": None,
    }
    if computation:
        params |= {
            "kind": computation.kind,
            "template": computation.template,
            "options": _json(computation.options),
            "cost_class": computation.cost_class,
            "accepts_missing": computation.accepts_missing,
            "schedule": computation.schedule.mode,
            "cron": computation.schedule.cron,
        }
    return params


def _column(row: Sequence[Any]) -> Column:
    computation = None
    if row[4] is not None:
        computation = Computation(
            kind=row[4],
            template=row[5],
            options=row[6],
            cost_class=row[7],
            accepts_missing=row[8],
            schedule=Schedule(mode=row[9], cron=row[10]),
        )
    return Column(
        column_id=row[0],
        name=row[1],
        position=row[2],
        type=_type(row[3]),
        computation=computation,
        definition_version=row[11],
    )


def _type(stored: Mapping[str, Any]) -> ColumnType:
    return ColumnType(
        name=TypeName(stored["name"]),
        choices=tuple(stored.get("choices", ())),
        free=stored.get("free", False),
        format=stored.get("format"),
        dimensions=stored.get("dimensions"),
    )


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
