"""Providers that are slow, lie, refuse or hang up cost a bounded number of calls and no cell."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from rig import COLLECTION_CAP, Rig, open_rig, worker_parts

from engine import Engine
from everfill.autofill import calls
from everfill.autofill.cell_worker import CellWorker
from everfill.autofill.columns import ColumnDraft
from everfill.autofill.dispatch import Only, Request
from everfill.compute.models import pacing
from everfill.kernel import limits
from everfill.kernel.config import AiSettings, Settings
from everfill.kernel.ids import CollectionId
from everfill.tables.types import ColumnType, TypeName
from provider import ProviderServer, Reply

LEASE_SECONDS = 0.5
TIMEOUT_SECONDS = 1.5
SLOTS = 15
RIGHT = Reply()  # 1.5, in the form that a number is asked for
LATE = {"late": Reply(latency_seconds=2 * LEASE_SECONDS)}
PASSING = {
    "storm": Reply(status=429, headers={"retry-after": "0"}, content="slow down"),
    "broken": Reply(status=503, content="overloaded"),
    "cut": Reply(cut=True),
    "no chat": Reply(raw=b"<html>"),
    "hung": Reply(hang=True),
}
LYING = {
    "wrong type": Reply(content="as many as you like"),
    "truncated": Reply(content="1.", finish_reason="length"),
}
SCORE = ColumnDraft(
    name="score", kind="ai", template="Rate {{word}}", type=ColumnType(name=TypeName.NUMBER)
)


@dataclass
class Liar:
    """Answers the first calls of some prompts badly, and all others well."""

    chance: random.Random
    faults: dict[str, Reply]
    share: float
    calls: Counter[str] = field(default_factory=Counter)
    served: Counter[str] = field(default_factory=Counter)

    def respond(self, call: Any) -> Reply:
        prompt = next(m["content"] for m in call["messages"] if m["role"] == "user")
        self.calls[prompt] += 1
        first = self.calls[prompt] <= 2 and self.chance.random() < self.share
        name = self.chance.choice(list(self.faults)) if first else "right"
        self.served[name] += 1
        return self.faults.get(name, RIGHT)


@asynccontextmanager
async def open_provider(
    engine: Engine, url: str, seed: int, faults: dict[str, Reply], share: float
) -> AsyncGenerator[tuple[Rig, Liar, Callable[..., CellWorker]], None]:
    async with ProviderServer(keep_calls=False) as server, open_rig(engine, seed) as rig:
        liar = Liar(rig.chance, faults, share)
        server.respond = liar.respond
        ai = AiSettings(base_url=server.base_url, timeout_seconds=TIMEOUT_SECONDS, model="m")
        rig.engine = replace(engine, settings=Settings(data_dir=engine.settings.data_dir, ai=ai))
        async with worker_parts(rig.engine, url) as make_worker:
            yield rig, liar, make_worker


async def states(rig: Rig, table: CollectionId) -> dict[str, int]:
    """Cells by state; what is ready shows the right value."""
    counts = await rig.engine.counts(table)
    right = "select count(*) from cells where computed_value = '1.5'"
    assert await rig.look(right) == (counts.get("ready", 0),)
    return counts


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tries follow each other at once, and a breaker is not open for long."""
    monkeypatch.setattr(calls.limits, "RETRY_BASE_SECONDS", 0.02)
    monkeypatch.setattr(pacing, "OPEN_SECONDS", 0.02)
    monkeypatch.setattr(pacing, "OPEN_SECONDS_MAX", 0.1)


def workers(make_worker: Callable[..., CellWorker]) -> Sequence[CellWorker]:
    return [make_worker(slots=SLOTS, lease_seconds=LEASE_SECONDS) for _ in range(2)]


async def run_storm(engine: Engine, url: str, *, seed: int, words: int, kills: int) -> None:
    """Everything that passes, and workers killed amid: each cell ends right, at a bounded cost."""
    faults = {**PASSING, **LATE}
    async with open_provider(engine, url, seed, faults, 0.4) as (rig, liar, make_worker):
        table = await rig.make("t", SCORE, words=words)
        for worker in workers(make_worker):
            rig.start(worker)
        for _ in range(kills):
            await asyncio.sleep(rig.chance.uniform(0, 0.3))
            await rig.kill_one()
            rig.start(make_worker(slots=SLOTS, lease_seconds=LEASE_SECONDS))
            await rig.sample()
        await rig.settle()
        assert await states(rig, table) == {"ready": words}
        assert rig.over == []
        assert all(liar.served[name] for name in faults), "a fault never came"
        failed = sum(liar.served[name] for name in PASSING)
        assert liar.calls.total() <= words + failed + kills * min(SLOTS, COLLECTION_CAP)
        assert len(liar.calls) == words
        assert max(liar.calls.values()) <= limits.TRIES_MAX + kills


@pytest.mark.chaos
async def test_a_storm_of_passing_faults_ends_with_every_answer_at_a_bounded_cost(
    engine: Engine, database_url: str
) -> None:
    await run_storm(engine, database_url, seed=1, words=60, kills=2)


@pytest.mark.chaos
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
async def test_a_long_storm_ends_with_every_answer_at_a_bounded_cost(
    engine: Engine, database_url: str, seed: int
) -> None:
    await run_storm(engine, database_url, seed=500 + seed, words=600, kills=15)


@pytest.mark.chaos
async def test_answers_later_than_the_lease_are_paid_once(
    engine: Engine, database_url: str
) -> None:
    async with open_provider(engine, database_url, 0, LATE, 1.0) as (rig, liar, make_worker):
        table = await rig.make("t", SCORE, words=20)
        for worker in workers(make_worker):
            rig.start(worker)
        await rig.settle()
        assert await states(rig, table) == {"ready": 20}
        assert liar.served == {"late": 20}


@pytest.mark.chaos
async def test_a_provider_that_never_recovers_costs_the_stated_tries_and_no_more(
    engine: Engine, database_url: str
) -> None:
    never = {"right": PASSING["broken"]}
    async with open_provider(engine, database_url, 0, never, 0.0) as (rig, liar, make_worker):
        table = await rig.make("t", SCORE, words=20)
        for worker in workers(make_worker):
            rig.start(worker)
        await rig.settle()
        assert await states(rig, table) == {"failed": 20}
        assert max(liar.calls.values()) <= limits.TRIES_MAX
        assert liar.calls.total() >= pacing.FAILURES_MAX
        spent = liar.calls.total()

        del liar.faults["right"]
        await rig.engine.dispatcher.dispatch(Request(collection_id=table, only=Only.FAILED))
        await rig.settle()
        assert await states(rig, table) == {"ready": 20}
        assert liar.calls.total() == spent + 20


@pytest.mark.chaos
async def test_lies_fail_their_cells_and_cost_two_calls_at_most(
    engine: Engine, database_url: str
) -> None:
    async with open_provider(engine, database_url, 3, LYING, 0.5) as (rig, liar, make_worker):
        table = await rig.make("t", SCORE, words=60)
        for worker in workers(make_worker):
            rig.start(worker)
        await rig.settle()
        counts = await states(rig, table)
        assert counts["ready"] + counts["failed"] == 60
        assert counts["failed"] >= liar.served["truncated"] > 0
        assert liar.served["wrong type"] > 0
        assert max(liar.calls.values()) <= 2
