"""Kinds that take simulated time, and fail as the seed has it."""

from __future__ import annotations

import asyncio
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sim_loop import PROCESS
from sim_queue_sql import REFUSED

from everfill.compute.protocol import (
    ComputeContext,
    ComputeKind,
    ComputeRequest,
    ComputeResult,
    CostClass,
    Failure,
    KindSpec,
    NotFound,
    Value,
)
from everfill.tables.types import TEXT, ColumnType, TypeName
from everfill.tables.values import JsonValue

if TYPE_CHECKING:
    from sim_world import World

BATCHES = {CostClass.INSTANT: 1_000, CostClass.LOCAL: 3, CostClass.REMOTE: 1}
SECONDS = {CostClass.INSTANT: 0.0, CostClass.LOCAL: 0.3, CostClass.REMOTE: 3.0}
PILLS_OF = 12  # one text in so many kills whoever computes it
SLOW_SHARE = 0.15  # calls that take longer than a lease


@dataclass
class Calls:
    """What was computed, for the checks."""

    by_text: Counter[str] = field(default_factory=Counter)
    remote: int = 0


class SimKind(ComputeKind):
    """The text itself, after a while, or what goes wrong with it."""

    def __init__(self, world: World, cost_class: CostClass) -> None:
        self._world = world
        self._chance = world.chance
        self._passing = world.chance.choice([0.05, 0.2, 0.7])
        self._spec = KindSpec(
            name=f"sim:{cost_class}",
            summary="Its own text.",
            cost_class=cost_class,
            batch_max=BATCHES[cost_class],
            default_type=TEXT,
            output_types=frozenset(TypeName),
            pure=cost_class is CostClass.INSTANT,
        )

    @property
    def spec(self) -> KindSpec:
        return self._spec

    def check(self, output_type: ColumnType, options: Mapping[str, JsonValue]) -> None:
        """Every definition will do."""

    async def compute(
        self,
        requests: Sequence[ComputeRequest],
        context: ComputeContext,  # noqa: ARG002 - the protocol gives it
    ) -> Sequence[ComputeResult]:
        for request in requests:
            self._world.calls.by_text[request.text] += 1
        self._world.calls.remote += len(requests) * (self._spec.cost_class is CostClass.REMOTE)
        await asyncio.sleep(self._seconds())
        await self._maybe_die(requests)
        results = [self._result(request) for request in requests]
        if self._fails(0.01):
            raise RuntimeError("the kind crashed")
        return results[1:] if self._fails(0.005) else results

    def _seconds(self) -> float:
        longest = SECONDS[self._spec.cost_class]
        if self._world.stormy and longest and self._chance.random() < SLOW_SHARE:
            longest = self._world.lease_seconds * 2
        return self._chance.uniform(0.0, longest)

    async def _maybe_die(self, requests: Sequence[ComputeRequest]) -> None:
        process = PROCESS.get()
        if not (self._world.stormy and self._world.profile.pills and process):
            return
        salt = f"{self._world.seed} "
        if any(zlib.crc32((salt + r.text).encode()) % PILLS_OF == 0 for r in requests):
            self._world.kill(process)
            await asyncio.get_running_loop().create_future()

    def _fails(self, share: float) -> bool:
        world = self._world
        return world.stormy and world.profile.failures and self._chance.random() < share

    def _result(self, request: ComputeRequest) -> ComputeResult:
        if self._fails(self._passing):
            after = self._chance.choice([None, None, 0.0, 3.0, 20.0])
            return Failure(
                code="rate_limited", message="later", transient=True, retry_after_seconds=after
            )
        if self._fails(0.04):
            return Failure(code="refused", message="never", transient=False)
        if self._fails(0.04):
            return NotFound(reason="not here")
        if self._fails(0.03):
            return Value(value=f"{request.text}{REFUSED}")
        return Value(value=request.text)
