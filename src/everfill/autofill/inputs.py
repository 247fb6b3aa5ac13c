"""What to do with a claimed cell, decided from what it reads. Pure.

A cell that was typed over or locked is left alone; one whose inputs are not there waits; one whose
inputs did not change keeps its value; the rest becomes a request to its kind.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

import msgspec

from everfill.compute.protocol import ComputeRequest, KindSpec
from everfill.kernel.ids import ColumnId
from everfill.tables import templates
from everfill.tables.cells import SHOWN, CellStatus, Input
from everfill.tables.schema import Column, Computation, Schema
from everfill.tables.values import JsonValue, to_text

__all__ = ["Compute", "Decision", "Pinned", "Plan", "Unchanged", "Waiting", "decide", "make_plan"]

_HASH_BYTES: Final = 16
_NULL: Final = "null"
_ANSWERS: Final = SHOWN | {CellStatus.NOT_FOUND}


@dataclass(frozen=True, slots=True)
class Plan:
    """What a worker needs to know of one computed column.

    Attributes:
        column: The column.
        computation: Its computation.
        kind: What its kind declares.
        upstreams: What it reads, in order of mention.
        names: Their names.
        sole: The column that its template is nothing but a reference to.
        fingerprint: Everything besides the inputs that decides its values; free of ids, so that a
            copy of a collection keeps what was paid for.
    """

    column: Column
    computation: Computation
    kind: KindSpec
    upstreams: Sequence[Column]
    names: Mapping[ColumnId, str]
    sole: ColumnId | None
    fingerprint: bytes


@dataclass(frozen=True, slots=True)
class Pinned:
    """A person's value or a lock stands over the cell."""


@dataclass(frozen=True, slots=True)
class Unchanged:
    """Its value already is the one for these inputs."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """An input is not there."""

    code: str
    column: str


class Compute(NamedTuple):
    """A request for its kind, and the hash of what it saw."""

    request: ComputeRequest
    input_hash: bytes


Decision: TypeAlias = "Pinned | Unchanged | Waiting | Compute"


def make_plan(schema: Schema, column: Column, kind: KindSpec) -> Plan:
    """Prepare a computed column."""
    assert column.computation, "only computed columns are planned"
    upstreams = [schema.by_id[key] for key in column.upstreams]
    return Plan(
        column=column,
        computation=column.computation,
        kind=kind,
        upstreams=upstreams,
        names={read.column_id: read.name for read in upstreams},
        sole=templates.sole_reference(column.computation.template),
        fingerprint=_fingerprint(column, column.computation, kind),
    )


def decide(
    plan: Plan,
    own: Input | None,
    inputs: Sequence[Input | None],
    values: Sequence[JsonValue],
    *,
    forced: bool,
) -> Decision:
    """What to do with one claimed cell.

    Args:
        plan: Of its column.
        own: The cell itself, where it has been stored.
        inputs: What it reads, in the order of `plan.upstreams`.
        values: The same, decoded; ignored where an input is missing.
        forced: Whether an unchanged input hash counts for nothing.
    """
    if own and (own.overridden or own.locked):
        return Pinned()
    shown: list[str | None] = []
    present: dict[ColumnId, JsonValue] = {}
    for place, column in enumerate(plan.upstreams):
        given = inputs[place]
        code = "input_missing" if given is None else _missing(column, given)
        if given and code is None:
            shown.append(given.value)
            present[column.column_id] = values[place]
        elif code is None or plan.computation.accepts_missing:
            shown.append(None)
        else:
            return Waiting(code, column.name)
    input_hash = _hash(plan, shown)
    if not forced and own and own.input_hash == input_hash and _answered(own):
        return Unchanged()
    return Compute(_request(plan, present), input_hash)


def _answered(own: Input) -> bool:
    """Whether the cell holds the answer that its hash belongs to."""
    return own.computed or own.status in _ANSWERS


def _missing(column: Column, given: Input) -> str | None:
    """Why an input is not there, or None where it is."""
    if given.overridden:
        return "input_missing" if given.value == _NULL else None
    if column.computation and given.status not in SHOWN:
        return f"upstream_{given.status}"
    return "input_missing" if given.value is None or given.value == _NULL else None


def _hash(plan: Plan, shown: Sequence[str | None]) -> bytes:
    parts = [plan.fingerprint]
    for text in shown:
        data = b"" if text is None else text.encode()
        parts.append(b"%d:" % (-1 if text is None else len(data)))
        parts.append(data)
    return hashlib.blake2b(b"".join(parts), digest_size=_HASH_BYTES).digest()


def _request(plan: Plan, present: Mapping[ColumnId, JsonValue]) -> ComputeRequest:
    return ComputeRequest(
        text=templates.render(plan.computation.template, lambda key: to_text(present.get(key))),
        inputs={plan.names[key]: value for key, value in present.items()},
        source=present.get(plan.sole) if plan.sole is not None else None,
        output_type=plan.column.type,
        options=plan.computation.options,
    )


def _fingerprint(column: Column, computation: Computation, kind: KindSpec) -> bytes:
    places = {key: ColumnId(place) for place, key in enumerate(column.upstreams)}
    parts = (
        computation.kind,
        kind.version,
        templates.repoint(computation.template, places),
        computation.options,
        column.type,
    )
    return hashlib.sha256(msgspec.json.encode(parts, order="deterministic")).digest()
