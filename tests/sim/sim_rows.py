"""The rows of the simulated database, and transactions over them.

A transaction sees what is committed and what it wrote itself, statement by statement (read
committed); its writes become visible together at its commit, or never.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, NamedTuple

from everfill.autofill import machine
from everfill.autofill.machine import State

GONE: Final = object()
STATUS_STATES: Final = {
    "empty": State.IDLE,
    "waiting": State.IDLE,
    "ready": State.DONE,
    "not_found": State.DONE,
    "outdated": State.DONE,
    "failed": State.ERROR,
}


class Key(NamedTuple):
    """A cell of the whole installation."""

    collection_id: int
    row_id: int
    column_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceRow:
    cap_cells: int
    weight: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectionRow:
    namespace_id: int
    cap_cells: int
    schema_version: int = 1
    row_tail: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnRow:
    collection_id: int
    name: str
    position: int
    type: dict[str, Any]
    kind: str | None
    template: str | None
    cost_class: str | None
    created_at: datetime
    accepts_missing: bool = False
    schedule: str = "on_change"
    cron: str | None = None
    cron_ran_at: datetime | None = None
    definition_version: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CellRow:
    user_value: str | None = None
    computed_value: str | None = None
    status: str = "empty"
    locked: bool = False
    definition_version: int | None = None
    input_hash: bytes | None = None
    reason: str | None = None
    failed_hash: bytes | None = None
    """What a cell failed on, but for one whose burst of rounds ended so: for the checks alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    lane_id: int
    seq: int | None = None
    signal: int = 1
    rounds: int = 0
    tries: int = 0
    forced: bool = False
    interactive: bool = False
    retry_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    collection_id: int
    namespace_id: int
    run_id: int | None
    cost_class: str
    weight: float
    paused: bool = False
    cursor_seq: int = 0
    vtime: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRow:
    lane_id: int
    collection_id: int
    namespace_id: int
    seq_from: int
    seq_to: int
    n: int
    worker: str
    lease_until: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    collection_id: int
    column_ids: tuple[int, ...]
    only_status: str | None
    forced: bool
    row_ids: tuple[int, ...] | None
    last_row_id: int
    weight: float
    touched_at: datetime
    next_row_id: int = 1
    dispatched: bool = False
    cancelled: bool = False


TABLES: Final = (
    "namespaces",
    "collections",
    "columns",
    "references",
    "rows",
    "cells",
    "queue",
    "lanes",
    "tails",
    "clocks",
    "claims",
    "runs",
)


@dataclass
class Database:
    """What is committed, and the sequences, which no rollback turns back."""

    tables: dict[str, dict[Any, Any]] = field(default_factory=lambda: {name: {} for name in TABLES})
    sequences: dict[str, int] = field(default_factory=dict)

    def next_id(self, table: str) -> int:
        self.sequences[table] = self.sequences.get(table, 0) + 1
        return self.sequences[table]


class Transaction:
    """The writes of one transaction, and the locks it holds."""

    def __init__(self, database: Database, now: datetime) -> None:
        self.database = database
        self.started_at = now
        self.writes: dict[str, dict[Any, Any]] = {}
        self.locks: list[object] = []
        self.notified = False
        self.open = True
        self.spoilt = False
        """Whether a statement failed: nothing but a rollback is taken any more."""
        self._saved: list[tuple[dict[str, dict[Any, Any]], bool, int]] = []
        self.told: list[tuple[Any, ...]] = []
        """What the checks want to know once it is committed."""

    def now(self, params: dict[str, Any]) -> datetime:
        return params.get("now") or self.started_at

    def find(self, table: str, key: Any) -> Any:
        written = self.writes.get(table)
        if written and key in written:
            row = written[key]
            return None if row is GONE else row
        return self.database.tables[table].get(key)

    def scan(self, table: str) -> list[tuple[Any, Any]]:
        written = self.writes.get(table)
        committed = self.database.tables[table]
        if not written:
            return list(committed.items())
        merged = {**committed, **written}
        return [(key, row) for key, row in merged.items() if row is not GONE]

    def put(self, table: str, key: Any, row: Any) -> None:
        self.writes.setdefault(table, {})[key] = row

    def drop(self, table: str, key: Any) -> None:
        self.put(table, key, GONE)

    # -- savepoints -------------------------------------------------------------------------------

    def save(self) -> list[tuple[Any, ...]]:
        """Note what a part of the transaction began with."""
        writes = {table: dict(rows) for table, rows in self.writes.items()}
        self._saved.append((writes, self.notified, len(self.told)))
        return []

    def keep(self) -> list[tuple[Any, ...]]:
        """End the part."""
        self._saved.pop()
        return []

    def undo(self) -> list[tuple[Any, ...]]:
        """End the part without its writes; its locks stay, which is stricter than they are."""
        self.writes, self.notified, told = self._saved.pop()
        del self.told[told:]
        self.spoilt = False
        return []

    # -- cells as the machine has them ------------------------------------------------------------

    def cell(self, key: Key) -> machine.Cell:
        """A cell put together from its rows; its present place counts as number 0."""
        kept: CellRow = self.find("cells", key) or CellRow()
        entry: Entry | None = self.find("queue", key)
        definition = self.find("columns", key.column_id).definition_version
        settled_as = STATUS_STATES[kept.status]
        old = kept.definition_version not in {None, definition}
        return machine.Cell(
            state=settled_as if entry is None else self.state(entry),
            settled_as=settled_as,
            signal=entry.signal if entry else 0,
            rounds=entry.rounds if entry else 0,
            tries=entry.tries if entry else 0,
            definition=definition,
            outdated=kept.status == "outdated" or (settled_as is State.DONE and old),
            overridden=kept.user_value is not None,
            locked=kept.locked,
        )

    def state(self, entry: Entry) -> State:
        if entry.retry_at is not None:
            return State.RETRYING
        if entry.seq is None:
            return State.BLOCKED
        passed = entry.seq <= self.find("lanes", entry.lane_id).cursor_seq
        return State.COMPUTING if passed else State.QUEUED

    def upstreams(self, column_id: int) -> tuple[int, ...]:
        return self.find("references", column_id) or ()

    def dependents(self, column_id: int) -> Iterator[int]:
        return (key for key, ups in self.scan("references") if column_id in ups)

    def ready(self, key: Key) -> bool:
        """Whether no upstream of a cell is in the queue."""
        return not any(
            self.find("queue", key._replace(column_id=up)) for up in self.upstreams(key.column_id)
        )

    def entries(self, collection_id: int) -> list[tuple[Key, Entry]]:
        return [(key, row) for key, row in self.scan("queue") if key.collection_id == collection_id]
