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
        sole: The column that its template is nothing but a reference to.
        fingerprint: Everything besides the inputs that decides its values; free of ids, so that a
            copy of a collection keeps what was paid for.
    """

    column: Column
    computation: Computation
    kind: KindSpec
    upstreams: Sequence[Column]
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
    if not plan.computation.accepts_missing:
        for column, given in zip(plan.upstreams, inputs, strict=True):
            if code := _missing(column, given):
                return Waiting(code, column.name)
    shown = [
        given.value if given and not _missing(column, given) else None
        for column, given in zip(plan.upstreams, inputs, strict=True)
    ]
    input_hash = _hash(plan, shown)
    if not forced and own and own.input_hash == input_hash and _answered(own):
        return Unchanged()
    return Compute(_request(plan, shown, values), input_hash)


def _answered(own: Input) -> bool:
    """Whether the cell holds the answer that its hash belongs to."""
    return own.computed or own.status in _ANSWERS


def _missing(column: Column, given: Input | None) -> str | None:
    """Why an input is not there, or None where it is."""
    if given is None:
        return "input_missing"
    if given.overridden:
        return "input_missing" if given.value == _NULL else None
    if column.computation and given.status not in SHOWN:
        return f"upstream_{given.status}"
    return "input_missing" if given.value is None or given.value == _NULL else None


def _hash(plan: Plan, shown: Sequence[str | None]) -> bytes:
    digest = hashlib.blake2b(plan.fingerprint, digest_size=_HASH_BYTES)
    for text in shown:
        data = b"" if text is None else text.encode()
        digest.update(b"%d:" % (-1 if text is None else len(data)))
        digest.update(data)
    return digest.digest()


def _request(
    plan: Plan, shown: Sequence[str | None], values: Sequence[JsonValue]
) -> ComputeRequest:
    present: dict[ColumnId, JsonValue] = {
        column.column_id: value
        for column, text, value in zip(plan.upstreams, shown, values, strict=True)
        if text is not None
    }
    return ComputeRequest(
        text=templates.render(plan.computation.template, lambda key: to_text(present.get(key))),
        inputs=_by_name(plan.upstreams, present),
        source=present.get(plan.sole) if plan.sole is not None else None,
        output_type=plan.column.type,
        options=plan.computation.options,
    )


def _by_name(
    columns: Sequence[Column], present: Mapping[ColumnId, JsonValue]
) -> dict[str, JsonValue]:
    return {
        column.name: present[column.column_id] for column in columns if column.column_id in present
    }


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
