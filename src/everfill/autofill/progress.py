"""Progress: counts by status, rate, time left, tokens and cost.

The counts come from Postgres and are exact whatever crashed. Rate and time left are an
estimate from successive counts, kept by whoever watches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from everfill.infra.postgres import Pool, load_queries
from everfill.kernel.ids import CollectionId, ColumnId, RowId

__all__ = [
    "SNAPSHOT",
    "ColumnCounts",
    "Failures",
    "Progress",
    "Spending",
    "Waits",
    "Watch",
    "list_failures",
    "list_waits",
    "read_progress",
]

_SQL: Final = load_queries("everfill.autofill", "progress.sql")
SNAPSHOT: Final = (
    b"set transaction isolation level repeatable read, read only",
    b"set local enable_nestloop = off",
)
"""One view for all counts, whatever the planner believes: to it a queue that was just filled is
empty, and a loop over that for every cell takes minutes of a hundred thousand rows."""
_RATE_WINDOW_SECONDS: Final = 20.0
UNSETTLED: Final = ("blocked", "queued", "computing", "retrying")


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnCounts:
    """Cells of one computed column by state; they sum up to the rows.

    Attributes:
        counts: By settled status (`empty`, `waiting`, `ready`, `outdated`, `not_found`, `failed`)
            and by unsettled state (`blocked`, `queued`, `computing`, `retrying`).
    """

    column_id: ColumnId
    name: str
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """What was spent: calls, tokens, US dollars."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Failures:
    """Failed cells of one column and code, with an example message."""

    column: str
    code: str
    count: int
    message: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """Cells of one column that wait for another column's value."""

    column: str
    code: str
    for_column: str | None
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The state of a collection at one moment."""

    rows: int
    columns: Sequence[ColumnCounts]
    spending: Spending

    @property
    def total(self) -> Mapping[str, int]:
        """Counts over all computed columns."""
        total: dict[str, int] = {}
        for column in self.columns:
            for state, count in column.counts.items():
                total[state] = total.get(state, 0) + count
        return total

    @property
    def cells(self) -> int:
        """All computed cells."""
        return self.rows * len(self.columns)

    @property
    def settled(self) -> int:
        """Cells that have an outcome, and that nothing is going to change by itself."""
        return self.cells - self.unsettled - self.total.get("empty", 0)

    @property
    def unsettled(self) -> int:
        """Cells that something is still going to change."""
        return sum(self.total.get(state, 0) for state in UNSETTLED)


@dataclass(slots=True)
class Watch:
    """Estimates rate and time left from successive counts of unsettled cells."""

    _seen: list[tuple[float, int]] = field(default_factory=list[tuple[float, int]])

    def add(self, at_seconds: float, unsettled: int) -> None:
        """Note a count, at a monotonic time."""
        self._seen.append((at_seconds, unsettled))
        oldest = at_seconds - _RATE_WINDOW_SECONDS
        while len(self._seen) > 2 and self._seen[0][0] < oldest:  # noqa: PLR2004 - two make a rate
            del self._seen[0]

    @property
    def cells_per_second(self) -> float:
        """How fast unsettled cells became fewer lately."""
        if not self._seen:
            return 0.0
        (start, before), (end, now) = self._seen[0], self._seen[-1]
        return max(0.0, (before - now) / (end - start)) if end > start else 0.0

    @property
    def seconds_left(self) -> float | None:
        """Time to the last cell at this rate; None where there is no rate yet."""
        rate = self.cells_per_second
        return self._seen[-1][1] / rate if rate > 0 else None


async def read_progress(
    pool: Pool, collection_id: CollectionId, names: Mapping[ColumnId, str]
) -> Progress:
    """Count a collection's computed cells.

    Args:
        pool: Connections to Postgres.
        collection_id: Which collection.
        names: The computed columns by id, in the order they are told.
    """
    params = {"collection_id": collection_id}
    async with pool.connection() as connection, connection.transaction():
        for setting in SNAPSHOT:
            await connection.execute(setting)
        settled = await (await connection.execute(_SQL["count_cells"], params)).fetchall()
        entries = await (await connection.execute(_SQL["count_entries"], params)).fetchall()
        rows = (await (await connection.execute(_SQL["count_rows"], params)).fetchall())[0][0]
        spent = (await (await connection.execute(_SQL["spent"], params)).fetchall())[0]
    counts: dict[ColumnId, dict[str, int]] = {column_id: {} for column_id in names}
    for column_id, state, count in (*settled, *entries):
        if column_id in counts:
            counts[column_id][state] = count
    for by_state in counts.values():
        by_state["empty"] = rows - sum(v for k, v in by_state.items() if k != "empty")
    return Progress(
        rows=rows,
        columns=[
            ColumnCounts(column_id=key, name=name, counts=counts[key])
            for key, name in names.items()
        ],
        spending=Spending(
            calls=spent[0], input_tokens=spent[1], output_tokens=spent[2], cost_usd=spent[3]
        ),
    )


async def list_failures(
    pool: Pool,
    collection_id: CollectionId,
    names: Mapping[ColumnId, str],
    rows: Sequence[RowId] | None = None,
) -> list[Failures]:
    """Failed cells of some columns by column and code, the most first.

    Args:
        pool: Connections to Postgres.
        collection_id: Whose cells.
        names: Of the columns.
        rows: Only cells of these.
    """
    params = {"collection_id": collection_id, "columns": list(names), "rows": _listed(rows)}
    async with pool.connection() as connection:
        cursor = await connection.execute(_SQL["failures"], params)
        return [
            Failures(column=names[row[0]], code=row[1], count=row[2], message=row[3])
            for row in await cursor.fetchall()
        ]


async def list_waits(
    pool: Pool,
    collection_id: CollectionId,
    names: Mapping[ColumnId, str],
    rows: Sequence[RowId] | None = None,
) -> list[Waits]:
    """Waiting cells of some columns (and rows) by column and cause, the most first."""
    params = {"collection_id": collection_id, "columns": list(names), "rows": _listed(rows)}
    async with pool.connection() as connection:
        cursor = await connection.execute(_SQL["waits"], params)
        return [
            Waits(column=names[row[0]], code=row[1], for_column=row[2], count=row[3])
            for row in await cursor.fetchall()
        ]


def _listed(rows: Sequence[RowId] | None) -> list[RowId] | None:
    return None if rows is None else list(rows)
