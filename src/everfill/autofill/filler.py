"""Fills claimed cells: reads what they need, decides, calls their kinds, encodes the results."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import structlog

from everfill.autofill.calls import Job, call_kind, retry_delay_seconds, to_result
from everfill.autofill.finalizer import Result
from everfill.autofill.inputs import Compute, Pinned, Plan, Unchanged, Waiting, decide, make_plan
from everfill.autofill.queue import ClaimedCell, Outcome, OutcomeKind
from everfill.compute.protocol import ComputeContext, ComputeResult, Failure, Value
from everfill.compute.registry import close_kinds, get_kind
from everfill.infra.blobs import Blobs
from everfill.infra.postgres import OUTAGES, Pool, pass_cancellation
from everfill.kernel.clock import Clock, SystemClock
from everfill.kernel.errors import EverfillError, NotFoundError
from everfill.kernel.ids import CollectionId, ColumnId, RowId
from everfill.tables.cells import Cells, Input
from everfill.tables.definitions import Definitions
from everfill.tables.large_values import LargeValues
from everfill.tables.schema import Column, Schema
from everfill.tables.values import BlobRef, JsonValue, decode

__all__ = ["Filler", "faulted"]

_OUTAGE_SECONDS: Final = 0.5
_SLICE_CELLS: Final = 100
"""Cells in one turn of the loop, about 1 ms: others hold locks while they wait for their turn."""
_LOG: Final = structlog.stdlib.get_logger()

Place: TypeAlias = "tuple[RowId, ColumnId]"


@dataclass(frozen=True, slots=True)
class _Unusable:
    """A column that cannot be planned here: its kind is not installed, or broken."""

    column: Column
    error: EverfillError


@dataclass(frozen=True, slots=True)
class _Loaded:
    plans: Mapping[ColumnId, Plan | _Unusable]
    inputs: Mapping[Place, Input]
    values: Mapping[Place, JsonValue | EverfillError]


class Filler:
    """Turns claimed cells into results.

    Args:
        pool: Connections to Postgres.
        blobs: Where large values are.
        context: What kinds may use.
        clock: Measures calls.
    """

    def __init__(
        self, *, pool: Pool, blobs: Blobs, context: ComputeContext, clock: Clock | None = None
    ) -> None:
        self._pool = pool
        self._blobs = blobs
        self._large = LargeValues(blobs)
        self._context = context
        self._clock = clock or SystemClock()
        self._plans: dict[CollectionId, tuple[int, Mapping[ColumnId, Plan | _Unusable]]] = {}

    async def aclose(self) -> None:
        """Close the kinds that were used."""
        names = {
            plan.kind.name
            for _, plans in self._plans.values()
            for plan in plans.values()
            if isinstance(plan, Plan)
        }
        await close_kinds([get_kind(name) for name in names])

    async def fill(
        self, collection_id: CollectionId, cells: Sequence[ClaimedCell]
    ) -> AsyncGenerator[Sequence[Result], None]:
        """The results of claimed cells of one collection, as they come; one a cell."""
        loaded = await self._load(collection_id, cells)
        settled: list[Result] = []
        jobs: defaultdict[ColumnId, list[Job]] = defaultdict(list)
        for place, cell in enumerate(cells):
            if place % _SLICE_CELLS == _SLICE_CELLS - 1:
                await asyncio.sleep(0)
            decided = _decide(cell, loaded)
            if isinstance(decided, Job):
                jobs[cell.column_id].append(decided)
            else:
                settled.append(decided)
        if settled:
            yield settled
        calls = [asyncio.create_task(self._compute(batch)) for batch in _batches(jobs.values())]
        try:
            for call in asyncio.as_completed(calls):
                yield await call
        finally:
            for call in calls:
                call.cancel()

    async def _compute(self, jobs: Sequence[Job]) -> Sequence[Result]:
        kind = get_kind(jobs[0].plan.kind.name)
        started = self._clock.monotonic_seconds()
        results = await call_kind(kind, [job.compute.request for job in jobs], self._context)
        seconds = (self._clock.monotonic_seconds() - started) / len(jobs)
        encoded: list[Result] = []
        for job, result in zip(jobs, results, strict=True):
            if len(encoded) % _SLICE_CELLS == _SLICE_CELLS - 1:
                await asyncio.sleep(0)
            encoded.append(await self._encode(job, result, seconds))
        return encoded

    async def _encode(self, job: Job, result: ComputeResult, seconds: float) -> Result:
        if not isinstance(result, Value):
            return to_result(job, result, None, seconds)
        try:
            stored = (await self._large.store(result.value)).decode()
        except (ValueError, TypeError, RecursionError) as error:
            message = f"The value cannot be kept: {error}."
            refused = Failure(
                code="value_invalid", message=message, transient=False, usage=result.usage
            )
            return to_result(job, refused, None, seconds)
        except EverfillError as error:
            refused = Failure(
                code=error.code, message=str(error), transient=True, usage=result.usage
            )
            return to_result(job, refused, None, seconds)
        return to_result(job, result, stored, seconds)

    async def _load(self, collection_id: CollectionId, cells: Sequence[ClaimedCell]) -> _Loaded:
        """What the cells read; waits through an outage, because the cells are already claimed."""
        while True:
            try:
                return await self._load_once(collection_id, cells)
            except OUTAGES as error:
                pass_cancellation()
                _LOG.warning("filler.outage", collection_id=collection_id, error=str(error))
                await asyncio.sleep(_OUTAGE_SECONDS)

    async def _load_once(
        self, collection_id: CollectionId, cells: Sequence[ClaimedCell]
    ) -> _Loaded:
        async with self._pool.connection() as connection:
            try:
                plans = await self._load_plans(Definitions(connection), collection_id)
            except NotFoundError:  # the collection was deleted meanwhile
                return _Loaded({}, {}, {})
            columns = {cell.column_id for cell in cells}
            usable = [plan for key in columns if isinstance(plan := plans.get(key), Plan)]
            upstreams = {column.column_id for plan in usable for column in plan.upstreams}
            inputs = await Cells(connection, self._blobs).read_inputs(
                collection_id,
                sorted({cell.row_id for cell in cells}),
                sorted(columns | upstreams),
            )
        values = {
            place: await self._decode(given.value)
            for place, given in inputs.items()
            if given.value is not None and place[1] in upstreams
        }
        return _Loaded(plans, inputs, values)

    async def _load_plans(
        self, definitions: Definitions, collection_id: CollectionId
    ) -> Mapping[ColumnId, Plan | _Unusable]:
        version = await definitions.schema_version(collection_id)
        known = self._plans.get(collection_id)
        if known and known[0] == version:
            return known[1]
        schema = await definitions.load_schema(collection_id)
        plans = {column.column_id: _plan(schema, column) for column in schema.computed}
        self._plans[collection_id] = (schema.version, plans)
        return plans

    async def _decode(self, stored: str) -> JsonValue | EverfillError:
        """An input's value; where its blob cannot be read, why."""
        value = decode(stored)
        if not isinstance(value, BlobRef):
            return value
        try:
            return await self._large.restore(stored)
        except EverfillError as error:
            return error


def faulted(cell: ClaimedCell, error: Exception) -> Result:
    """The result of a cell that a fault of the worker itself left without one: tried again.

    Its definition version is not known here; a negative one stands for whatever is current.
    """
    message = f"The worker failed: {type(error).__name__}: {error}"
    reason = {"code": "worker_fault", "message": message[:200], "retryable": True}
    delay_seconds = retry_delay_seconds(cell.tries, None)
    return Result(
        Outcome(cell, -1, OutcomeKind.RETRY, reason=json.dumps(reason), delay_seconds=delay_seconds)
    )


def _unreadable(cell: ClaimedCell, version: int, error: EverfillError) -> Result:
    """The result of a cell whose input is kept where it cannot be read."""
    reason = {"code": error.code, "message": error.message, "retryable": error.retryable}
    kind = OutcomeKind.RETRY if error.retryable else OutcomeKind.FAILED
    delay_seconds = retry_delay_seconds(cell.tries, None) if error.retryable else 0.0
    return Result(
        Outcome(cell, version, kind, reason=json.dumps(reason), delay_seconds=delay_seconds)
    )


def _plan(schema: Schema, column: Column) -> Plan | _Unusable:
    assert column.computation, "only computed columns are planned"
    try:
        return make_plan(schema, column, get_kind(column.computation.kind).spec)
    except EverfillError as error:
        return _Unusable(column, error)


def _decide(cell: ClaimedCell, loaded: _Loaded) -> Result | Job:
    plan = loaded.plans.get(cell.column_id)
    if plan is None:  # the column was dropped meanwhile: its entry is gone, nothing lands
        return Result(Outcome(cell, 0, OutcomeKind.FAILED))
    if isinstance(plan, _Unusable):
        reason = {"code": plan.error.code, "message": str(plan.error), "retryable": False}
        version = plan.column.definition_version
        return Result(Outcome(cell, version, OutcomeKind.FAILED, reason=json.dumps(reason)))
    places = [(cell.row_id, column.column_id) for column in plan.upstreams]
    values: list[JsonValue] = []
    for place in places:
        value = loaded.values.get(place)
        if isinstance(value, EverfillError):
            return _unreadable(cell, plan.column.definition_version, value)
        values.append(value)
    decision = decide(
        plan,
        loaded.inputs.get((cell.row_id, cell.column_id)),
        [loaded.inputs.get(place) for place in places],
        values,
        forced=cell.forced,
    )
    if isinstance(decision, Compute):
        return Job(cell, plan, decision)
    return Result(_settled(cell, plan.column.definition_version, decision))


def _settled(cell: ClaimedCell, version: int, decision: Pinned | Unchanged | Waiting) -> Outcome:
    match decision:
        case Unchanged():
            return Outcome(cell, version, OutcomeKind.UNCHANGED)
        case Pinned():
            reason = json.dumps({"code": "input_changed"})
            return Outcome(cell, version, OutcomeKind.OUTDATED, reason=reason)
        case Waiting(code, column):
            reason = json.dumps({"code": code, "column": column})
            return Outcome(cell, version, OutcomeKind.WAITING, reason=reason)


def _batches(groups: Iterable[Sequence[Job]]) -> Iterator[Sequence[Job]]:
    """Jobs of one column each, as many together as its kind takes."""
    for jobs in groups:
        size = jobs[0].plan.kind.batch_max
        for start in range(0, len(jobs), size):
            yield jobs[start : start + size]
