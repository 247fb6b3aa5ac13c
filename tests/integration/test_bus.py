"""The bus over a Redis that answers, is flushed, is silent, or is not there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest
import pytest_asyncio
import redis.asyncio as aioredis
from structlog.testing import capture_logs

from everfill.autofill.bus import Bus, Frame
from everfill.autofill.queue import Spent
from everfill.infra.redis import Redis, open_redis
from everfill.infra.stack import Endpoints
from everfill.kernel.ids import CollectionId, ColumnId

TABLE = CollectionId(1_000_001)
ONE = ColumnId(7)
NOWHERE = "redis://127.0.0.1:1"


@pytest_asyncio.fixture
async def raw(stack: Endpoints) -> AsyncIterator[aioredis.Redis]:
    client = aioredis.Redis.from_url(stack.redis_url)
    await client.flushall()
    yield client
    await client.aclose()


@pytest_asyncio.fixture
async def bus(stack: Endpoints, raw: aioredis.Redis) -> AsyncIterator[Bus]:  # noqa: ARG001 - flushed first
    async with Bus.open(stack.redis_url) as opened:
        yield opened


async def complete(bus: Bus, count: int) -> None:
    spent = Spent(column_id=ONE, calls=count, input_tokens=10, output_tokens=2, cost_usd=0.5)
    await bus.completed(TABLE, {(ONE, "ready"): count, (ONE, "failed"): 1}, [spent])


async def drain(bus: Bus, after: str = "0") -> tuple[str, dict[str, int]]:
    drained = await bus.drain(TABLE, after, count_max=100, block_seconds=0.001)
    return drained.after, drained.counts


async def test_completions_are_summed_by_status_with_what_they_cost(bus: Bus) -> None:
    await complete(bus, 3)
    await complete(bus, 4)
    drained = await bus.drain(TABLE, "0", count_max=100, block_seconds=0.001)
    assert drained.counts == {"ready": 7, "failed": 2}
    assert (drained.input_tokens, drained.output_tokens, drained.cost_usd) == (20, 4, 1.0)
    assert drained.completions == 2


async def test_what_was_told_is_not_told_again_even_from_the_beginning(bus: Bus) -> None:
    await complete(bus, 3)
    after, _ = await drain(bus)
    assert (await drain(bus))[1] == {"ready": 3, "failed": 1}, "not forgotten yet"
    await bus.forget(TABLE, after)
    await complete(bus, 4)
    assert (await drain(bus))[1] == {"ready": 4, "failed": 1}


async def test_an_entry_that_cannot_be_read_is_skipped_and_holds_up_nothing(
    bus: Bus, raw: aioredis.Redis
) -> None:
    stream = f"autofill:completions:{TABLE}"
    await complete(bus, 1)
    await raw.xadd(stream, {b"p": b"\xc1"})
    await raw.xadd(stream, {b"other": b"field"})
    await complete(bus, 2)
    with capture_logs():
        after, counts = await drain(bus)
    assert counts == {"ready": 3, "failed": 2}
    assert (await drain(bus, after))[1] == {}


async def test_a_stream_that_nobody_uses_goes_away(bus: Bus, raw: aioredis.Redis) -> None:
    await complete(bus, 1)
    await bus.emit(Frame(collection_id=TABLE, counts={"ready": 1}))
    for name in ("completions", "progress"):
        assert 0 < await raw.ttl(f"autofill:{name}:{TABLE}") <= 3_600


async def test_frames_go_on_after_the_last_one_that_was_seen(bus: Bus) -> None:
    for count in (1, 2, 3):
        await bus.emit(Frame(collection_id=TABLE, counts={"ready": count}))
    first, *_ = await bus.frames(TABLE, "0", block_seconds=0.01)
    rest = await bus.frames(TABLE, first[0], block_seconds=0.01)
    assert [frame.counts["ready"] for _, frame in rest] == [2, 3]


@pytest.mark.parametrize("made_up", ["", "nonsense", "1-2-3", "9" * 40])
async def test_an_id_that_a_browser_made_up_is_no_fault_of_redis(bus: Bus, made_up: str) -> None:
    await bus.emit(Frame(collection_id=TABLE, counts={"ready": 1}))
    with capture_logs() as logs:
        assert len(await bus.frames(TABLE, made_up, block_seconds=0.01)) == 1
    assert logs == []


async def milliseconds(raw: aioredis.Redis) -> int:
    seconds, micros = await raw.time()
    return seconds * 1_000 + micros // 1_000


async def test_a_flushed_redis_is_an_empty_one(bus: Bus, raw: aioredis.Redis) -> None:
    await complete(bus, 1)
    after, _ = await drain(bus)
    await bus.share(TABLE, b"{}")
    await raw.flushall()
    assert await bus.find_shared(TABLE) is None
    while await milliseconds(raw) <= int(str(after).partition("-")[0]):
        pass  # a stream that begins anew in the same millisecond repeats its numbers
    await complete(bus, 2)
    assert (await drain(bus, after))[1] == {"ready": 2, "failed": 1}


async def test_one_of_many_processes_gets_the_turn(stack: Endpoints, bus: Bus) -> None:
    async with Bus.open(stack.redis_url) as other:
        turns = await asyncio.gather(
            *(one.take_turn(TABLE, seconds=30) for one in (bus, other) for _ in range(50))
        )
    assert sum(turns) == 1


async def test_without_redis_nothing_raises_and_everybody_gets_a_turn() -> None:
    async with Bus.open(NOWHERE) as bus:
        await complete(bus, 1)
        await bus.share(TABLE, b"{}")
        await bus.forget(TABLE, "1-1")
        assert await bus.find_shared(TABLE) is None
        assert (await drain(bus, "5-0")) == ("5-0", {})
        assert await bus.take_turn(TABLE, seconds=30)
        assert await bus.take_turn(TABLE, seconds=30)


async def test_who_reads_in_a_loop_does_not_spin_while_redis_is_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waited: list[float] = []

    async def wait(seconds: float) -> None:
        waited.append(seconds)

    async with Bus.open(NOWHERE) as bus:
        monkeypatch.setattr("everfill.infra.redis.asyncio.sleep", wait)
        for _ in range(3):
            assert await bus.frames(TABLE, "0", block_seconds=0.25) == []
    assert waited == [0.25] * 3


@dataclass
class Hands:
    """A clock that a test moves."""

    seconds: float = 0.0

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic_seconds(self) -> float:
        return self.seconds


@asynccontextmanager
async def silent_server() -> AsyncIterator[tuple[str, list[int]]]:
    """A port that accepts connections and never says a word; counts the connections."""
    heard: list[int] = []
    done = asyncio.Event()

    async def listen(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(1)
        await done.wait()
        writer.close()

    server = await asyncio.start_server(listen, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield f"redis://127.0.0.1:{port}", heard
    finally:
        done.set()
        server.close()
        await server.wait_closed()


async def test_a_silent_redis_is_tried_by_one_caller_a_second_and_logged_once() -> None:
    clock = Hands()
    async with silent_server() as (url, heard), open_redis(url) as opened:
        redis = Redis(opened._client, clock)

        async def put() -> None:
            await redis.put("key", b"value", seconds=1)

        with capture_logs() as logs:
            await put()
            assert len(heard) == 1
            await asyncio.gather(*(put() for _ in range(100)))
            assert len(heard) == 1, "left alone"
            clock.seconds += 1.0
            await asyncio.gather(*(put() for _ in range(100)))
            assert len(heard) == 2, "one tries, the others do not wait for it"
        assert [entry["event"] for entry in logs] == ["redis.unavailable"]


async def test_a_redis_that_comes_back_is_used_and_its_next_outage_is_logged_again(
    raw: aioredis.Redis,
) -> None:
    clock = Hands()
    redis = Redis(raw, clock)

    async def refuse(_: aioredis.Redis) -> None:
        raise ConnectionRefusedError

    with capture_logs() as logs:
        await redis.attempt(refuse, default=None)
        assert await redis.find("key") is None
        clock.seconds += 1.0
        await redis.put("key", b"value", seconds=60)
        assert await redis.find("key") == b"value"
        await redis.attempt(refuse, default=None)
    names = [entry["event"] for entry in logs]
    assert names == ["redis.unavailable", "redis.available", "redis.unavailable"]
