"""Brings results home: one finalize at a time for each collection, as large as what has gathered.

While one transaction runs, the next results gather; so batches grow by themselves under load and a
single result goes at once when there is none. A result is kept until Postgres has it: a lost
connection is tried again, and a value that Postgres refuses fails its own cell, no other.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

import psycopg
import structlog

from everfill.autofill.queue import Outcome, OutcomeKind, Queue, Spent, Verdict
from everfill.infra.postgres import OUTAGES, pass_cancellation
from everfill.kernel.ids import CellKey, ClaimId, CollectionId, ColumnId
from everfill.kernel.tasks import end_tasks

__all__ = ["CompletionSink", "Finalizer", "Result"]

_BATCH_CELLS_MAX: Final = 2_000  # one transaction: about 100 ms under the collection's lock
_RETRY_SECONDS: Final = 0.5
_LOG: Final = structlog.stdlib.get_logger()


class Result(NamedTuple):
    """An outcome on its way home, with what its call cost."""

    outcome: Outcome
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0


class CompletionSink(Protocol):
    """Told of every batch that came home; best effort."""

    async def completed(
        self,
        collection_id: CollectionId,
        counts: Mapping[tuple[ColumnId, str], int],
        spent: Sequence[Spent],
    ) -> None:
        """Must not raise and must not block for long."""
        ...


class Finalizer:
    """The way home for the results of one worker.

    Args:
        queue: Where they go.
        sink: Told afterwards.
        on_done: Called with the number of cells that left the worker's hands, by cost class.
    """

    def __init__(
        self, queue: Queue, sink: CompletionSink, on_done: Callable[[Mapping[str, int]], None]
    ) -> None:
        self._queue = queue
        self._sink = sink
        self._on_done = on_done
        self._waiting: dict[CollectionId, deque[Result]] = {}
        self._tasks: dict[CollectionId, asyncio.Task[None]] = {}
        self._left: dict[ClaimId, int] = {}

    @property
    def claims(self) -> list[ClaimId]:
        """The claims that still have cells out."""
        return list(self._left)

    def expect(self, claims: Mapping[ClaimId, int]) -> None:
        """Take note of new claims and of how many cells each holds."""
        self._left.update(claims)

    def put(self, results: Sequence[Result]) -> None:
        """Send results of one collection home."""
        if not results:
            return
        collection_id = results[0].outcome.cell.collection_id
        self._waiting.setdefault(collection_id, deque()).extend(results)
        if collection_id not in self._tasks:
            task = asyncio.create_task(self._flush(collection_id))
            self._tasks[collection_id] = task

    async def drained(self) -> None:
        """Wait until everything that was put is home."""
        while self._tasks:
            await asyncio.gather(*self._tasks.values())

    async def cancel(self) -> None:
        """Stop trying; what is not home is computed again by somebody else."""
        await end_tasks(self._tasks.values())

    async def _flush(self, collection_id: CollectionId) -> None:
        waiting = self._waiting[collection_id]
        try:
            while waiting:
                batch = [waiting.popleft() for _ in range(min(len(waiting), _BATCH_CELLS_MAX))]
                try:
                    await self._deliver(collection_id, batch)
                except Exception:  # noqa: BLE001 - a fault of ours must not hold cells for ever
                    _LOG.exception("finalize.fault", collection_id=collection_id)
                    self._forget(batch)
        finally:
            del self._tasks[collection_id]
            if not waiting:
                del self._waiting[collection_id]

    async def _deliver(self, collection_id: CollectionId, batch: Sequence[Result]) -> None:
        ended = self._count_down(batch)
        spent = _spent(batch)
        outcomes = [result.outcome for result in batch]
        verdicts = await self._finalize(collection_id, outcomes, ended, spent)
        self._on_done(Counter(outcome.cell.cost_class for outcome in outcomes))
        counts = Counter(
            (outcome.cell.column_id, _status(outcome, verdicts)) for outcome in outcomes
        )
        await self._sink.completed(collection_id, counts, spent)

    def _forget(self, batch: Sequence[Result]) -> None:
        """Let go of claims whose results cannot be brought home: their leases run out."""
        for result in batch:
            self._left.pop(result.outcome.cell.claim_id, None)
        self._on_done(Counter(result.outcome.cell.cost_class for result in batch))

    def _count_down(self, batch: Sequence[Result]) -> list[ClaimId]:
        """Claims of which these are the last cells."""
        ended: list[ClaimId] = []
        for claim_id, count in Counter(r.outcome.cell.claim_id for r in batch).items():
            left = self._left.get(claim_id, 0) - count
            if left > 0:
                self._left[claim_id] = left
            else:
                self._left.pop(claim_id, None)
                ended.append(claim_id)
        return ended

    async def _finalize(
        self,
        collection_id: CollectionId,
        outcomes: Sequence[Outcome],
        ended: Sequence[ClaimId],
        spent: Sequence[Spent],
    ) -> dict[CellKey, Verdict]:
        while True:
            try:
                return await self._queue.finalize(collection_id, outcomes, ended=ended, spent=spent)
            except psycopg.DataError as error:
                return await self._isolate(collection_id, outcomes, ended, spent, error)
            except OUTAGES as error:
                pass_cancellation()
                _LOG.warning("finalize.retried", collection_id=collection_id, error=str(error))
                await asyncio.sleep(_RETRY_SECONDS)

    async def _isolate(
        self,
        collection_id: CollectionId,
        outcomes: Sequence[Outcome],
        ended: Sequence[ClaimId],
        spent: Sequence[Spent],
        error: psycopg.DataError,
    ) -> dict[CellKey, Verdict]:
        """Find the value that Postgres refuses by halving; its cell fails."""
        if len(outcomes) == 1:
            refused = [_refused(outcomes[0], error)]
            return await self._finalize(collection_id, refused, ended, spent)
        half = len(outcomes) // 2
        first = await self._finalize(collection_id, outcomes[:half], (), spent)
        return first | await self._finalize(collection_id, outcomes[half:], ended, ())


def _refused(outcome: Outcome, error: psycopg.DataError) -> Outcome:
    assert outcome.value is not None or outcome.provenance, "only a value can be refused"
    reason = {
        "code": "value_refused",
        "message": f"The database cannot hold this value: {error.diag.message_primary}.",
        "retryable": False,
    }
    return outcome._replace(
        kind=OutcomeKind.FAILED,
        value=None,
        provenance=None,
        reason=json.dumps(reason),
    )


def _status(outcome: Outcome, verdicts: Mapping[CellKey, Verdict]) -> str:
    verdict = verdicts.get(CellKey(outcome.cell.row_id, outcome.cell.column_id))
    if verdict is None:
        return "lost"
    return outcome.kind if verdict is Verdict.SETTLE else verdict


def _spent(batch: Sequence[Result]) -> list[Spent]:
    """What the calls of a batch cost, by column."""
    totals: dict[ColumnId, list[float]] = {}
    for result in batch:
        if result.calls:
            total = totals.setdefault(result.outcome.cell.column_id, [0, 0, 0, 0.0])
            total[0] += result.calls
            total[1] += result.input_tokens
            total[2] += result.output_tokens
            total[3] += result.cost_usd
    return [
        Spent(
            column_id=column_id,
            calls=int(calls),
            input_tokens=int(input_tokens),
            output_tokens=int(output_tokens),
            cost_usd=cost_usd,
        )
        for column_id, (calls, input_tokens, output_tokens, cost_usd) in totals.items()
    ]
