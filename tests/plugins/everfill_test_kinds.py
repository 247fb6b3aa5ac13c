"""Kinds for tests, installed like anybody's: this folder on PYTHONPATH is an installed package.

`test:count` appends every request to the file that COUNTED_CALLS_FILE names, so that a test
can tell how often each cell was computed whatever was killed. `test:slow` waits. `test:flaky` fails
in passing as often as its options say.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Mapping, Sequence

from everfill.compute.protocol import (
    ComputeContext,
    ComputeRequest,
    ComputeResult,
    CostClass,
    Failure,
    KindSpec,
    Value,
)
from everfill.tables.types import TEXT, ColumnType, TypeName
from everfill.tables.values import JsonValue

_TYPES = frozenset({TypeName.TEXT})


class _Kind:
    spec: KindSpec

    def check(self, output_type: ColumnType, options: Mapping[str, JsonValue]) -> None:
        pass

    async def aclose(self) -> None:
        pass


class CountKind(_Kind):
    spec = KindSpec(
        name="test:count",
        summary="The text itself; every call is counted.",
        cost_class=CostClass.INSTANT,
        batch_max=500,
        default_type=TEXT,
        output_types=_TYPES,
    )

    async def compute(
        self, requests: Sequence[ComputeRequest], context: ComputeContext
    ) -> Sequence[ComputeResult]:
        del context
        _append("".join(f"{request.text}\n" for request in requests))
        return [Value(value=request.text) for request in requests]


class SlowKind(_Kind):
    spec = KindSpec(
        name="test:slow",
        summary="The text itself, after `seconds`.",
        cost_class=CostClass.REMOTE,
        batch_max=1,
        default_type=TEXT,
        output_types=_TYPES,
    )

    async def compute(
        self, requests: Sequence[ComputeRequest], context: ComputeContext
    ) -> Sequence[ComputeResult]:
        del context
        await asyncio.sleep(float(str(requests[0].options.get("seconds", 0.05))))
        _append("".join(f"{request.text}\n" for request in requests))
        return [Value(value=request.text) for request in requests]


class FlakyKind(_Kind):
    spec = KindSpec(
        name="test:flaky",
        summary="Fails in passing the first `failures` times of each text.",
        cost_class=CostClass.REMOTE,
        batch_max=1,
        default_type=TEXT,
        output_types=_TYPES,
    )

    def __init__(self) -> None:
        self._seen: Counter[str] = Counter()

    async def compute(
        self, requests: Sequence[ComputeRequest], context: ComputeContext
    ) -> Sequence[ComputeResult]:
        del context
        text = requests[0].text
        self._seen[text] += 1
        if self._seen[text] <= int(str(requests[0].options.get("failures", 1))):
            return [
                Failure(
                    code="rate_limited", message="slow down", transient=True, retry_after_seconds=0
                )
            ]
        return [Value(value=text)]


def _append(text: str) -> None:
    """One write, so that lines of several processes never mix."""
    path = os.environ.get("COUNTED_CALLS_FILE")
    if path:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(descriptor, text.encode(errors="backslashreplace"))
        finally:
            os.close(descriptor)
