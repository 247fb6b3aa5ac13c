"""The queue's repository: each method one short transaction of `queue.sql`.

`signal`, `claim` and `finalize` are the only ways a cell changes state. Writers hold the
collection's lock; a claim holds only the claims' lock, so the two never wait for each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeAlias

from everfill.infra.postgres import Connection, Pool, array_literal, load_queries, pipelined
from everfill.kernel import limits
from everfill.kernel.ids import CellKey, ClaimId, CollectionId, ColumnId, LaneId, RowId, RunId

__all__ = [
    "QUERIES",
    "Capacity",
    "ClaimedCell",
    "ColumnSignal",
    "Healed",
    "LaneBacklog",
    "Outcome",
    "OutcomeKind",
    "Queue",
    "QueueHealth",
    "Spent",
    "Verdict",
]

QUERIES: Final = load_queries("everfill.autofill", "queue.sql")
_STRAY_ENTRIES_MAX: Final = 50_000  # blocked entries looked at in one healing transaction
_LOST_REASON: Final = (
    '{"code": "worker_lost", "message": "Every worker that computed this cell died.",'
    ' "retryable": false}'
)

Params: TypeAlias = "dict[str, Any]"


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnSignal:
    """A column to signal: whether it is asked for or follows, and whether hashes are ignored."""

    column_id: ColumnId
    cost_class: str
    explicit: bool
    forced: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """How many cells of a cost class a worker can start soon."""

    cost_class: str
    interactive_max: int
    bulk_max: int
    total_max: int


class ClaimedCell(NamedTuple):
    """A cell in a worker's hands. `lane_id` and `seq` are its token, `signal` what it has seen.

    One is made a cell: a tuple costs a sixth of what a frozen dataclass does.
    """

    claim_id: ClaimId
    collection_id: CollectionId
    lane_id: LaneId
    cost_class: str
    interactive: bool
    row_id: RowId
    column_id: ColumnId
    seq: int
    signal: int
    forced: bool
    tries: int


class OutcomeKind(StrEnum):
    """What became of a claimed cell."""

    READY = "ready"
    NOT_FOUND = "not_found"
    FAILED = "failed"
    RETRY = "retry"
    WAITING = "waiting"
    UNCHANGED = "unchanged"
    OUTDATED = "outdated"
    """It was typed over or locked before it was computed."""


class Outcome(NamedTuple):
    """The result of one claimed cell, encoded for Postgres; a tuple as its cell is."""

    cell: ClaimedCell
    version: int
    kind: OutcomeKind
    value: str | None = None
    reason: str | None = None
    provenance: str | None = None
    input_hash: bytes | None = None
    delay_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What calls of one column cost, whether or not their results landed."""

    column_id: ColumnId
    calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: float


class Verdict(StrEnum):
    """What finalize decided; a cell without a verdict had lost its claim to it."""

    SETTLE = "settle"
    RETRY = "retry"
    AGAIN = "again"
    STALE = "stale"


_ROUND_AGAIN: Final = frozenset({Verdict.AGAIN, Verdict.STALE})


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneBacklog:
    """What one lane still holds, in cells."""

    lane_id: LaneId
    run_id: RunId | None
    cost_class: str
    paused: bool
    depth: int
    computing: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Healed:
    """What a healing pass put right, in cells (lanes for `lanes_dropped`)."""

    reclaimed: int = 0
    lost: int = 0
    retried: int = 0
    strays: int = 0
    lanes_dropped: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueHealth:
    """What an operator should know: entries, claims, and what holds vacuum back."""

    entries: int
    claims: int
    expired_claims: int
    stalled_runs: int
    dead_tuples: int
    oldest_snapshot_seconds: float


class Queue:
    """The queue of one installation.

    Args:
        pool: Connections to the migrated database.
        now: A fixed clock for tests; None: the database's own.
    """

    def __init__(self, pool: Pool, *, now: datetime | None = None) -> None:
        self._pool = pool
        self.now = now

    async def signal(
        self,
        connection: Connection,
        collection_id: CollectionId,
        rows: Sequence[RowId],
        columns: Sequence[ColumnSignal],
        *,
        run_id: RunId | None = None,
        only: str | None = None,
    ) -> int:
        """Signal cells inside the caller's transaction, which holds the collection's lock.

        Args:
            connection: In a transaction that called `lock`.
            collection_id: Whose cells.
            rows: Existing rows.
            columns: Explicit columns and everything downstream of them, in topological order.
            run_id: The bulk run; None: the interactive lane.
            only: Restrict the explicit cells to a status (`failed`, `outdated`, `not_found`,
                `empty`, `unfinished`), or to `unsettled` ones, which all others leave alone.

        Returns:
            How many cells were signalled.
        """
        if not rows or not columns:
            return 0
        lanes = await self._lanes(connection, collection_id, run_id, columns)
        cursor = await connection.execute(
            QUERIES["signal"],
            {
                "collection_id": collection_id,
                "interactive": run_id is None,
                "only": only,
                "rows": list(rows),
                "columns": [column.column_id for column in columns],
                "lanes": [lanes[column.cost_class] for column in columns],
                "forced": [column.forced for column in columns],
                "explicit": [column.explicit for column in columns],
            },
        )
        cells, woken = await _one(cursor)
        if woken:
            await connection.execute(QUERIES["notify"])
        return cells

    async def lock(self, connection: Connection, collection_id: CollectionId) -> None:
        """Become the one writer of a collection's queue until the transaction ends."""
        await connection.execute(QUERIES["lock_collection"], {"collection_id": collection_id})

    async def claim(
        self, worker: str, capacities: Sequence[Capacity], *, lease_seconds: float
    ) -> list[ClaimedCell]:
        """Take cells from the lanes that are furthest behind, within every cap."""
        params = {
            "worker": worker,
            "lease_seconds": lease_seconds,
            "now": self.now,
            "bulk_share": limits.BULK_SHARE_OF_CAP,
            "lanes_max": limits.LANES_PER_CLAIM,
            "cost_classes": [capacity.cost_class for capacity in capacities],
            "interactive_max": [capacity.interactive_max for capacity in capacities],
            "bulk_max": [capacity.bulk_max for capacity in capacities],
            "total_max": [capacity.total_max for capacity in capacities],
        }
        # One round trip: what a pipeline sends between two syncs is one transaction, so that no
        # worker holds the claims' lock while its own loop is busy elsewhere.
        async with pipelined(self._pool) as connection:
            await connection.execute(QUERIES["lock_claims"])
            cursor = await connection.execute(QUERIES["claim"], params)
        return [ClaimedCell._make(row) for row in await cursor.fetchall()]

    async def finalize(
        self,
        collection_id: CollectionId,
        outcomes: Sequence[Outcome],
        *,
        ended: Sequence[ClaimId] = (),
        spent: Iterable[Spent] = (),
    ) -> dict[CellKey, Verdict]:
        """Bring results home and release what waited for them, in one transaction.

        Safe to repeat when its answer was lost: what landed the first time does not land again.

        Args:
            collection_id: Whose cells.
            outcomes: At most one a cell.
            ended: Claims of which these are the last cells.
            spent: What the calls cost.

        Returns:
            The verdict of every cell whose claim still stood.
        """
        if not outcomes:
            return {}
        params = _finalize_params(collection_id, outcomes, ended) | {"now": self.now}
        async with pipelined(self._pool) as connection, connection.transaction():
            await self.lock(connection, collection_id)
            cursor = await connection.execute(QUERIES["finalize"], params)
            await self._record(connection, collection_id, spent)
            verdicts, upstreams = _judgement(outcomes, await _one(cursor))
            again = [key for key, verdict in verdicts.items() if verdict in _ROUND_AGAIN]
            settled = [
                key
                for key, verdict in verdicts.items()
                if verdict is Verdict.SETTLE and key.column_id in upstreams
            ]
            await self._release(connection, collection_id, again, settled)
        return verdicts

    async def release(
        self, connection: Connection, collection_id: CollectionId, cells: Sequence[CellKey]
    ) -> int:
        """Give blocked cells (these and their dependents) a place where nothing holds them."""
        return await self._release(connection, collection_id, cells)

    async def renew(self, claims: Sequence[ClaimId], *, lease_seconds: float) -> None:
        """Prolong the leases of claims that are still being computed."""
        async with self._pool.connection() as connection:
            await connection.execute(
                QUERIES["renew"],
                {"claims": list(claims), "lease_seconds": lease_seconds, "now": self.now},
            )

    async def give_back_all(self, claims: Sequence[ClaimId]) -> int:
        """Return what is left of claims, of whatever collections; returns the number of cells."""
        async with self._pool.connection() as connection:
            cursor = await connection.execute(
                QUERIES["claim_collections"], {"claims": list(claims)}
            )
            found = [CollectionId(row[0]) for row in await cursor.fetchall()]
        return sum([await self.give_back(collection_id, claims) for collection_id in found])

    async def give_back(self, collection_id: CollectionId, claims: Sequence[ClaimId]) -> int:
        """Return claimed cells that were not finished; they are queued again at once."""
        async with self._pool.connection() as connection, connection.transaction():
            await self.lock(connection, collection_id)
            cursor = await connection.execute(
                QUERIES["give_back"], {"collection_id": collection_id, "claims": list(claims)}
            )
            cells = [CellKey(*row) for row in await cursor.fetchall()]
            await self._release(connection, collection_id, cells)
        return len(cells)

    async def reclaim(self) -> Healed:
        """Queue again what was held by workers whose lease ran out."""
        reclaimed = lost = 0
        for collection_id in await self._collections("expired_collections"):
            async with self._pool.connection() as connection, connection.transaction():
                await self.lock(connection, collection_id)
                cursor = await connection.execute(
                    QUERIES["reclaim"], {"collection_id": collection_id, **self._times()}
                )
                found = await cursor.fetchall()
                cells = [CellKey(row[0], row[1]) for row in found]
                suspects = [
                    CellKey(row[0], row[1]) for row in found if row[2] >= limits.LOST_TRIES_MAX
                ]
                if suspects:
                    params = _keys(collection_id, suspects)
                    await connection.execute(
                        QUERIES["fail_lost"], {**params, "reason": _LOST_REASON}
                    )
                await self._release(connection, collection_id, cells)
                reclaimed, lost = reclaimed + len(cells), lost + len(suspects)
        return Healed(reclaimed=reclaimed, lost=lost)

    async def retry_due(self) -> int:
        """Queue again what failed in passing and is due; returns the number of cells."""
        retried = 0
        for collection_id in await self._collections("due_collections"):
            async with self._pool.connection() as connection, connection.transaction():
                await self.lock(connection, collection_id)
                cursor = await connection.execute(
                    QUERIES["retry_due"], {"collection_id": collection_id, **self._times()}
                )
                cells = [CellKey(*row) for row in await cursor.fetchall()]
                await self._release(connection, collection_id, cells)
                retried += len(cells)
        return retried

    async def heal(self) -> Healed:
        """Move what no ordinary step would move, and drop lanes without work."""
        strays = dropped = 0
        for collection_id in await self._collections("stray_collections"):
            async with self._pool.connection() as connection, connection.transaction():
                await self.lock(connection, collection_id)
                cursor = await connection.execute(
                    QUERIES["stray_entries"],
                    {"collection_id": collection_id, "entries_max": _STRAY_ENTRIES_MAX},
                )
                cells = [CellKey(*row) for row in await cursor.fetchall()]
                strays += await self._release(connection, collection_id, cells)
        for collection_id in await self._collections("idle_lane_collections"):
            async with self._pool.connection() as connection, connection.transaction():
                await self.lock(connection, collection_id)
                cursor = await connection.execute(
                    QUERIES["drop_idle_lanes"], {"collection_id": collection_id}
                )
                dropped += cursor.rowcount
        return Healed(strays=strays, lanes_dropped=dropped)

    async def drop(
        self,
        connection: Connection,
        collection_id: CollectionId,
        cells: Sequence[CellKey],
        *,
        running: bool,
    ) -> list[CellKey]:
        """Take cells out of the queue; `running`: even those a worker holds.

        Returns:
            The cells that were in it.
        """
        name = "drop_entries" if running else "drop_idle_entries"
        cursor = await connection.execute(QUERIES[name], _keys(collection_id, cells))
        return [CellKey(*row) for row in await cursor.fetchall()]

    async def rearrange(
        self, connection: Connection, collection_id: CollectionId, column_id: ColumnId
    ) -> None:
        """Let the entries of a column wait for what it reads now, and no longer for what it read.

        Inside the transaction that changed its references, under the collection's lock.
        """
        params = {"collection_id": collection_id, "column_id": column_id}
        await connection.execute(QUERIES["block_column"], params)
        chunk = {**params, "after": 0, "entries_max": _STRAY_ENTRIES_MAX}
        while True:
            cursor = await connection.execute(QUERIES["blocked_entries"], chunk)
            cells = [CellKey(*row) for row in await cursor.fetchall()]
            if not cells:
                return
            await self._release(connection, collection_id, cells)
            chunk["after"] = cells[-1].row_id

    async def drop_columns(
        self, connection: Connection, collection_id: CollectionId, columns: Sequence[ColumnId]
    ) -> None:
        """Take whole columns out of the queue."""
        await connection.execute(
            QUERIES["drop_columns"], {"collection_id": collection_id, "columns": list(columns)}
        )

    async def backlog(self, collection_id: CollectionId) -> list[LaneBacklog]:
        """What waits and what is computing, lane by lane."""
        async with self._pool.connection() as connection:
            cursor = await connection.execute(QUERIES["backlog"], {"collection_id": collection_id})
            return [
                LaneBacklog(
                    lane_id=row[0],
                    run_id=row[1],
                    cost_class=row[2],
                    paused=row[3],
                    depth=row[4],
                    computing=row[5],
                )
                for row in await cursor.fetchall()
            ]

    async def is_idle(self, collection_id: CollectionId) -> bool:
        """Whether nothing of a collection is unsettled or still being dispatched."""
        async with self._pool.connection() as connection:
            cursor = await connection.execute(QUERIES["is_idle"], {"collection_id": collection_id})
            (idle,) = await _one(cursor)
        return idle

    async def health(self) -> QueueHealth:
        """How the whole queue is; counts every entry, so not for a hot path."""
        async with self._pool.connection() as connection:
            row = await _one(await connection.execute(QUERIES["health"]))
        return QueueHealth(
            entries=row[0],
            claims=row[1],
            expired_claims=row[2],
            stalled_runs=row[3],
            dead_tuples=row[4],
            oldest_snapshot_seconds=row[5],
        )

    async def _lanes(
        self,
        connection: Connection,
        collection_id: CollectionId,
        run_id: RunId | None,
        columns: Sequence[ColumnSignal],
    ) -> dict[str, LaneId]:
        cursor = await connection.execute(
            QUERIES["ensure_lanes"],
            {
                "collection_id": collection_id,
                "run_id": run_id,
                "cost_classes": [column.cost_class for column in columns],
            },
        )
        return dict(await cursor.fetchall())

    async def _release(
        self,
        connection: Connection,
        collection_id: CollectionId,
        cells: Sequence[CellKey],
        settled: Sequence[CellKey] = (),
    ) -> int:
        if not cells and not settled:
            return 0
        params = {
            "collection_id": collection_id,
            "rows": array_literal(cell.row_id for cell in cells),
            "columns": array_literal(cell.column_id for cell in cells),
            "settled_rows": array_literal(cell.row_id for cell in settled),
            "settled_columns": array_literal(cell.column_id for cell in settled),
        }
        cursor = await connection.execute(QUERIES["release"], params)
        released, woken = await _one(cursor)
        if woken:
            await connection.execute(QUERIES["notify"])
        return released

    async def _record(
        self, connection: Connection, collection_id: CollectionId, spent: Iterable[Spent]
    ) -> None:
        for item in spent:
            await connection.execute(
                QUERIES["record_usage"],
                {
                    "collection_id": collection_id,
                    "column_id": item.column_id,
                    "calls": item.calls,
                    "input_tokens": item.input_tokens,
                    "output_tokens": item.output_tokens,
                    "cost_usd": item.cost_usd,
                },
            )

    async def _collections(self, query: str) -> list[CollectionId]:
        async with self._pool.connection() as connection:
            cursor = await connection.execute(QUERIES[query], self._times())
            return [CollectionId(row[0]) for row in await cursor.fetchall()]

    def _times(self) -> Params:
        """What tells whether a time has come, or cannot be meant."""
        return {
            "now": self.now,
            "future_seconds": limits.FUTURE_SECONDS_MAX,
            "retry_seconds_max": limits.RETRY_SECONDS_MAX,
        }


def _finalize_params(
    collection_id: CollectionId, outcomes: Sequence[Outcome], ended: Sequence[ClaimId]
) -> Params:
    cells = [outcome.cell for outcome in outcomes]
    return {
        "collection_id": collection_id,
        "rounds_max": limits.DIRTY_ROUNDS_MAX,
        "tries_max": limits.TRIES_MAX,
        "ended": array_literal(ended),
        "held": array_literal({*ended, *(cell.claim_id for cell in cells)}),
        "touched": array_literal({cell.column_id for cell in cells}),
        "claims": array_literal(cell.claim_id for cell in cells),
        "rows": array_literal(cell.row_id for cell in cells),
        "columns": array_literal(cell.column_id for cell in cells),
        "lanes": array_literal(cell.lane_id for cell in cells),
        "seqs": array_literal(cell.seq for cell in cells),
        "signals": array_literal(cell.signal for cell in cells),
        "versions": array_literal(outcome.version for outcome in outcomes),
        "outcomes": array_literal(outcome.kind for outcome in outcomes),
        "values": [outcome.value for outcome in outcomes],
        "reasons": [outcome.reason for outcome in outcomes],
        "provenances": [outcome.provenance for outcome in outcomes],
        "hashes": [outcome.input_hash for outcome in outcomes],
        "delays": array_literal(outcome.delay_seconds for outcome in outcomes),
    }


def _judgement(
    outcomes: Sequence[Outcome], told: tuple[Any, ...]
) -> tuple[dict[CellKey, Verdict], frozenset[ColumnId]]:
    """The verdict of every cell whose claim still stood, and the columns that have dependents."""
    all_stood, rows, columns, words, settled_rows, settled_columns, upstreams = told
    keys: Iterable[CellKey] = (
        [CellKey(outcome.cell.row_id, outcome.cell.column_id) for outcome in outcomes]
        if all_stood
        else map(CellKey, settled_rows or (), settled_columns or ())
    )
    verdicts = dict.fromkeys(keys, Verdict.SETTLE)
    if words:
        verdicts |= zip(map(CellKey, rows, columns), map(Verdict, words), strict=True)
    return verdicts, frozenset(upstreams or ())


def _keys(collection_id: CollectionId, cells: Sequence[CellKey]) -> Params:
    return {
        "collection_id": collection_id,
        "rows": [cell.row_id for cell in cells],
        "columns": [cell.column_id for cell in cells],
    }


async def _one(cursor: Any) -> tuple[Any, ...]:
    row = await cursor.fetchone()
    assert row is not None, "an aggregate always gives a row"
    return row
