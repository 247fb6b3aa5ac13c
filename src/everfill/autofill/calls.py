"""From requests to outcomes: calls of a kind, and what their results mean for the queue."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import structlog

from everfill.autofill.finalizer import Result
from everfill.autofill.inputs import Compute, Plan
from everfill.autofill.queue import ClaimedCell, Outcome, OutcomeKind
from everfill.compute.protocol import (
    ComputeContext,
    ComputeKind,
    ComputeRequest,
    ComputeResult,
    CostClass,
    Failure,
    NotFound,
    Usage,
    Value,
)
from everfill.kernel import limits
from everfill.kernel.errors import EverfillError
from everfill.tables.values import JsonValue

__all__ = ["Job", "call_kind", "retry_delay_seconds", "to_result"]

_LOG: Final = structlog.stdlib.get_logger()
_JITTER: Final = random.SystemRandom()


class Job(NamedTuple):
    """A claimed cell that has to be computed."""

    cell: ClaimedCell
    plan: Plan
    compute: Compute


async def call_kind(
    kind: ComputeKind, requests: Sequence[ComputeRequest], context: ComputeContext
) -> Sequence[ComputeResult]:
    """The results of a batch, whatever the kind does.

    An exception fails the batch in passing. In a batch of several every request is then called by
    itself, so that one bad request cannot fail its neighbours.
    """
    try:
        results = await kind.compute(requests, context)
    except Exception as error:  # noqa: BLE001 - a kind is anybody's code; its fault is its cells'
        if len(requests) == 1:
            return [_crashed(kind, error)]
        single = [await call_kind(kind, [request], context) for request in requests]
        return [results[0] for results in single]
    if len(results) != len(requests):
        message = f"The kind {kind.spec.name} gave {len(results)} results for {len(requests)}."
        return [Failure(code="kind_faulty", message=message, transient=False) for _ in requests]
    return results


def to_result(job: Job, result: ComputeResult, stored: str | None, seconds: float) -> Result:
    """What a result means for the queue.

    Args:
        job: The cell.
        result: What its kind gave.
        stored: The value's stored form, of a `Value`.
        seconds: How long the call took, its share of a batch.
    """
    outcome = Outcome(
        cell=job.cell,
        version=job.plan.column.definition_version,
        kind=_kind(result),
        value=stored,
        reason=_reason(result),
        provenance=_provenance(job.plan, result, seconds),
        input_hash=job.compute.input_hash,
        delay_seconds=_delay_seconds(result, job.cell.tries),
    )
    if job.plan.kind.cost_class is not CostClass.REMOTE and result.usage is None:
        return Result(outcome)
    usage = result.usage or Usage()
    return Result(outcome, 1, usage.input_tokens, usage.output_tokens, usage.cost_usd)


def retry_delay_seconds(tries: int, retry_after_seconds: float | None) -> float:
    """How long to wait before the next try: exponential, with full jitter, and never before asked.

    Calls that failed together must not come back together, so what a provider asks for is
    lengthened by a random quarter.
    """
    ceiling = min(limits.RETRY_CAP_SECONDS, limits.RETRY_BASE_SECONDS * 2.0**tries)
    if retry_after_seconds is None:
        return _JITTER.uniform(ceiling / 2, ceiling)
    asked = min(retry_after_seconds, limits.RETRY_CAP_SECONDS)
    return max(asked, 0.0) + _JITTER.uniform(0, max(asked, ceiling) / 4)


def _kind(result: ComputeResult) -> OutcomeKind:
    if isinstance(result, Value):
        return OutcomeKind.READY
    if isinstance(result, NotFound):
        return OutcomeKind.NOT_FOUND
    return OutcomeKind.RETRY if result.transient else OutcomeKind.FAILED


def _reason(result: ComputeResult) -> str | None:
    if isinstance(result, Value):
        return None
    if isinstance(result, NotFound):
        return _json({"code": "not_found", "message": _short(result.reason)})
    return _json(
        {
            "code": result.code,
            "message": _short(result.message),
            "retryable": result.transient,
        }
    )


def _provenance(plan: Plan, result: ComputeResult, seconds: float) -> str | None:
    """What a cell's explanation needs beyond its own columns; nothing for an instant kind."""
    if plan.kind.cost_class is CostClass.INSTANT:
        return None
    told: dict[str, JsonValue] = {"kind": plan.kind.name, "seconds": round(seconds, 3)}
    if isinstance(result, Value) and result.note:
        told["note"] = _short(result.note)
    if usage := result.usage:
        told |= {
            "model": usage.model,
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "cost_usd": usage.cost_usd,
        }
    return _json(told)


def _delay_seconds(result: ComputeResult, tries: int) -> float:
    if isinstance(result, Failure) and result.transient:
        return retry_delay_seconds(tries, result.retry_after_seconds)
    return 0.0


def _crashed(kind: ComputeKind, error: Exception) -> Failure:
    _LOG.error("compute.crashed", kind=kind.spec.name, exc_info=error)
    if isinstance(error, EverfillError):
        return Failure(code=error.code, message=str(error), transient=error.retryable)
    if isinstance(error, asyncio.TimeoutError):
        return Failure(code="timeout", message="The call took too long.", transient=True)
    message = f"The kind {kind.spec.name} crashed: {type(error).__name__}: {error}"
    return Failure(code="kind_crashed", message=message, transient=True)


def _short(text: str) -> str:
    clean = text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
    return clean[: limits.ERROR_MESSAGE_CHARS_MAX]


def _json(value: Mapping[str, JsonValue]) -> str:
    return json.dumps(value, ensure_ascii=False)
