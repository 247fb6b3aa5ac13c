"""Collections and their columns as data: what the repositories read and everybody passes around."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from difflib import get_close_matches
from functools import cached_property

from everfill.kernel.errors import NotFoundError
from everfill.kernel.ids import CollectionId, ColumnId, NamespaceId
from everfill.tables import dag, templates
from everfill.tables.types import ColumnType
from everfill.tables.values import JsonValue

__all__ = ["Collection", "Column", "Computation", "Schedule", "Schema"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """When a computed column recomputes by itself: `on_change`, `never` or `cron`."""

    mode: str = "on_change"
    cron: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Computation:
    """How a computed column gets its values.

    Attributes:
        kind: A registered kind's name.
        template: Stored form, references by id.
        options: The kind's own options.
        cost_class: How workers schedule it; the kind declares it.
        accepts_missing: Whether it runs although an input is missing.
        schedule: When it recomputes by itself.
        version: Raised by every change of the definition.
    """

    kind: str
    template: str
    cost_class: str
    options: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])
    accepts_missing: bool = False
    schedule: Schedule = field(default_factory=Schedule)


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column; an input column has no computation."""

    column_id: ColumnId
    name: str
    position: int
    type: ColumnType
    computation: Computation | None
    definition_version: int

    @property
    def upstreams(self) -> tuple[ColumnId, ...]:
        """The columns it reads, in order of mention."""
        return templates.references(self.computation.template) if self.computation else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Collection:
    """A table: its place, its cap on cells in flight, and what was imported into it last."""

    collection_id: CollectionId
    namespace_id: NamespaceId
    namespace: str
    name: str
    cap_cells: int
    schema_version: int
    source: Mapping[str, JsonValue] | None
    created_at: datetime


@dataclass(frozen=True, kw_only=True)
class Schema:
    """The columns of one collection at one schema version, in order of position."""

    collection_id: CollectionId
    version: int
    columns: Sequence[Column]

    @cached_property
    def by_id(self) -> Mapping[ColumnId, Column]:
        """Columns by id."""
        return {column.column_id: column for column in self.columns}

    @cached_property
    def ids(self) -> Mapping[str, ColumnId]:
        """Ids by name."""
        return {column.name: column.column_id for column in self.columns}

    @cached_property
    def names(self) -> Mapping[ColumnId, str]:
        """Names by id."""
        return {column.column_id: column.name for column in self.columns}

    @cached_property
    def upstreams(self) -> Mapping[ColumnId, Sequence[ColumnId]]:
        """The edges of the DAG."""
        return {column.column_id: column.upstreams for column in self.columns}

    @cached_property
    def computed(self) -> Sequence[Column]:
        """Computed columns in topological order."""
        order = dag.topological_order(self.upstreams)
        return [self.by_id[key] for key in order if self.by_id[key].computation]

    def get(self, name: str) -> Column:
        """A column by name.

        Raises:
            NotFoundError: `column_unknown`.
        """
        if name not in self.ids:
            close = get_close_matches(name, self.ids, n=1)
            known = ", ".join(self.ids) or "none"
            hint = f"Did you mean {close[0]}?" if close else f"The columns are: {known}."
            raise NotFoundError("column_unknown", f"There is no column {name!r}.", hint=hint)
        return self.by_id[self.ids[name]]

    def template_of(self, column: Column) -> str | None:
        """A computed column's template as a person reads it."""
        if column.computation is None:
            return None
        return templates.unbind(column.computation.template, self.names)

    def dependents(self, column_id: ColumnId) -> list[Column]:
        """The columns that read a column directly."""
        return [column for column in self.columns if column_id in column.upstreams]

    def downstream(self, roots: Sequence[ColumnId]) -> list[Column]:
        """Everything that depends on the roots, without them, in topological order."""
        return [self.by_id[key] for key in dag.downstream(self.upstreams, roots)]
