"""Turns to call a model, alone and over a Redis that several workers share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import msgspec
import pytest_asyncio
from pydantic import SecretStr

from everfill.autofill.bus import Bus
from everfill.compute.ai import AiKind
from everfill.compute.models import pacing
from everfill.compute.models.pacer import Pacer, Turn
from everfill.compute.protocol import ComputeContext, ComputeRequest, Failure, Value
from everfill.infra.redis import open_redis
from everfill.infra.stack import Endpoints
from everfill.kernel.config import AiSettings, Settings
from everfill.tables.types import TEXT
from provider import ProviderServer, Reply

KEY = "pace:test"
SLOWLY = Reply(status=429, content="Slow down.", headers={"retry-after": "0.05"})
NOWHERE = "redis://127.0.0.1:1"


@dataclass
class Shelf:
    """A board in memory, whose time is a number."""

    now: float = 1_000.0
    kept: dict[str, bytes] = field(default_factory=dict)
    changes: int = 0

    async def change(
        self, key: str, change: Callable[[bytes | None, float], bytes]
    ) -> tuple[bytes, float] | None:
        self.changes += 1
        await asyncio.sleep(0)
        self.kept[key] = change(self.kept.get(key), self.now)
        return self.kept[key], self.now


@pytest_asyncio.fixture
async def bus(stack: Endpoints) -> AsyncIterator[Bus]:
    async with open_redis(stack.redis_url) as redis:
        await redis.attempt(lambda client: client.flushall(), default=None)
        yield Bus(redis)


async def take(pacer: Pacer, *, patience_seconds: float = 10) -> Turn:
    turn = await pacer.turn(KEY, patience_seconds=patience_seconds)
    assert turn
    return turn


async def ask(kind: AiKind, context: ComputeContext, text: str) -> Value | Failure:
    request = ComputeRequest(text=text, inputs={}, source=None, output_type=TEXT, options={})
    (result,) = await kind.compute([request], context)
    assert isinstance(result, (Value, Failure))
    return result


def context(server: ProviderServer, bus: Bus | None = None, **ai: object) -> ComputeContext:
    settings = AiSettings.model_validate(
        {"base_url": server.base_url, "api_key": SecretStr("k"), "model": "m", **ai}
    )
    return ComputeContext(settings=Settings(ai=settings), files=None, board=bus)


async def test_a_refusal_to_one_process_holds_back_the_others() -> None:
    shelf = Shelf()
    one, other = Pacer(shelf), Pacer(shelf)
    turn = await take(one)
    await one.rejected(turn, 60)

    assert await other.turn(KEY, patience_seconds=5) is None
    shelf.now += 61
    assert await take(other)


async def test_the_board_is_asked_ten_times_a_second_at_most_however_fast_calls_are() -> None:
    shelf = Shelf()
    pacer = Pacer(shelf)
    shelf.kept[KEY] = _pace(rate=10_000.0, next_at=shelf.now)
    await take(pacer)  # it learns the rate
    before = shelf.changes

    await asyncio.gather(*[take(pacer) for _ in range(500)])

    assert shelf.changes - before <= 2


async def test_a_model_that_fails_again_and_again_is_tried_by_one_process_alone() -> None:
    shelf = Shelf()
    pacers = [Pacer(shelf) for _ in range(3)]
    turn = await take(pacers[0])
    for _ in range(pacing.FAILURES_MAX):
        await pacers[0].failed(turn)
    assert await pacers[1].turn(KEY, patience_seconds=0.5) is None
    shelf.now += pacing.OPEN_SECONDS

    probe = await take(pacers[1])
    assert await pacers[2].turn(KEY, patience_seconds=0.1) is None
    await pacers[1].accepted(probe)

    assert await take(pacers[2])


async def test_what_stands_on_the_board_and_is_no_pace_is_replaced() -> None:
    shelf = Shelf()
    for kept in (b"", b"nonsense", b"\x81\xa7version\x63"):
        shelf.kept[KEY] = kept
        assert await take(Pacer(shelf))


async def test_without_a_board_that_answers_a_process_keeps_its_own_pace() -> None:
    async with open_redis(NOWHERE) as redis:
        pacer = Pacer(Bus(redis))
        await pacer.rejected(await take(pacer), 60)

        assert await pacer.turn(KEY, patience_seconds=1) is None


async def test_paces_are_shared_over_redis(bus: Bus) -> None:
    one, other = Pacer(bus), Pacer(bus)
    turns = await asyncio.gather(*[take(pacer) for pacer in (one, other) for _ in range(5)])
    await one.rejected(turns[0], 60)

    assert await other.turn(KEY, patience_seconds=1) is None


async def test_a_call_too_many_is_made_again_and_fails_no_cell(bus: Bus) -> None:
    async with ProviderServer() as server:
        server.respond = lambda _call: SLOWLY if server.call_count % 4 == 1 else None
        kinds = [AiKind(), AiKind()]
        results = await asyncio.gather(
            *[ask(kinds[n % 2], context(server, bus), f"{n}") for n in range(20)]
        )
        await asyncio.gather(*[kind.aclose() for kind in kinds])

    values = [result.value for result in results if isinstance(result, Value)]
    assert sorted(values) == sorted(f"echo: {n}" for n in range(20))


async def test_patience_ends_and_the_providers_words_are_told(bus: Bus) -> None:
    async with ProviderServer() as server:
        server.default = Reply(status=429, content="Slow.", headers={"retry-after": "100"})
        kind = AiKind()
        results = [await ask(kind, context(server, bus, patience_seconds=1), "x") for _ in "ab"]
        await kind.aclose()

    assert [(r.code, r.transient) for r in results if isinstance(r, Failure)] == [
        ("rate_limited", True)
    ] * 2
    assert "Slow." in str(results[0])
    assert "no turn came" in str(results[1])
    assert server.call_count == 1, "the second was not even tried"


async def test_a_provider_that_is_out_is_left_alone_and_its_cells_say_why(bus: Bus) -> None:
    async with ProviderServer() as server:
        server.default = Reply(status=503, content="Under water.")
        kind = AiKind()
        results = [await ask(kind, context(server, bus), f"{n}") for n in range(30)]
        await kind.aclose()

    failures = [result for result in results if isinstance(result, Failure)]
    assert {(f.code, f.transient) for f in failures} == {("provider_failed", True)}
    assert all("Under water." in failure.message for failure in failures)
    assert len(failures) == 30
    assert server.call_count <= pacing.FAILURES_MAX + 2, "and a probe or two on a slow machine"
    assert all((f.retry_after_seconds or 0) > 0 for f in failures[pacing.FAILURES_MAX + 2 :])


async def test_a_rate_that_an_operator_allows_is_kept(bus: Bus) -> None:
    async with ProviderServer() as server:
        own = {"one": {"base_url": server.base_url, "requests_per_minute": 1_200}}
        kind = AiKind()
        where = context(server, bus, connections=own, model="one:m")
        clock = asyncio.get_running_loop().time
        began = clock()
        await asyncio.gather(*[ask(kind, where, f"{n}") for n in range(11)])
        seconds = clock() - began
        await kind.aclose()

    assert seconds >= 0.45, "ten pauses of a twentieth of a second"


def _pace(**fields: float) -> bytes:
    return msgspec.msgpack.encode(pacing.Pace(raised_at=1_000.0, **fields))
