from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta

import pytest
import pytest_asyncio
import redis.asyncio as aioredis
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from engine import Engine
from everfill.autofill.activities import Activities
from everfill.autofill.announcer import TemporalAnnouncer
from everfill.autofill.bus import Bus
from everfill.autofill.columns import ColumnDraft
from everfill.autofill.dispatch import Dispatcher, Request
from everfill.autofill.histories import forget_histories
from everfill.autofill.janitor import Janitor, roll_up_usage
from everfill.autofill.queue import Capacity
from everfill.autofill.setup_worker import SetupWorker
from everfill.autofill.workflow_names import JANITOR_ID, setup_id
from everfill.infra.stack import Endpoints
from everfill.kernel.config import JanitorSettings, Settings, TemporalSettings
from everfill.kernel.ids import CollectionId

PATIENCE_SECONDS = 60


@dataclass
class Served:
    """An engine whose collections are served by a setup worker on a task queue of its own."""

    engine: Engine
    client: Client
    bus: Bus
    announcer: TemporalAnnouncer
    dispatcher: Dispatcher
    redis_url: str


@pytest_asyncio.fixture
async def served(engine: Engine, stack: Endpoints) -> AsyncIterator[Served]:
    flusher = aioredis.Redis.from_url(stack.redis_url)
    await flusher.flushall()
    await flusher.aclose()
    async with serving(engine, stack, redis_url=stack.redis_url) as opened:
        yield opened


@contextlib.asynccontextmanager
async def serving(engine: Engine, stack: Endpoints, *, redis_url: str) -> AsyncIterator[Served]:
    """A setup worker and what speaks to it; its janitor ticks twice a second."""
    queue_name = f"test-{id(engine)}"
    temporal = TemporalSettings(task_queue=queue_name)
    settings = Settings(
        data_dir=engine.settings.data_dir,
        temporal=temporal,
        janitor=JanitorSettings(tick_seconds=0.5),
    )
    client = await Client.connect(stack.temporal_address)
    async with (
        Bus.open(redis_url) as bus,
        TemporalAnnouncer.open(temporal, stack.temporal_address, bus) as announcer,
    ):
        dispatcher = Dispatcher(engine.pool, engine.queue, engine.blobs, announcer)
        janitor = Janitor(engine.pool, engine.queue, dispatcher)
        activities = Activities(
            engine.pool, engine.queue, bus, janitor, announcer, tick_seconds=0.5
        )
        stop = asyncio.Event()
        worker = SetupWorker(settings, stack.temporal_address, activities)
        running = asyncio.create_task(worker.run(stop))
        try:
            yield Served(engine, client, bus, announcer, dispatcher, redis_url)
        finally:
            stop.set()
            await running
            for workflow_id in (JANITOR_ID, *(setup_id(CollectionId(n)) for n in range(1, 5))):
                with contextlib.suppress(RPCError):
                    await client.get_workflow_handle(workflow_id).terminate()


async def words(engine: Engine, name: str, rows: int) -> CollectionId:
    table = await engine.table(name, ColumnDraft(name="word"))
    schema = await engine.schema(table)
    for start in range(0, rows, 10_000):
        batch = [{schema.ids["word"]: f"w{n}"} for n in range(start, min(rows, start + 10_000))]
        await engine.edits.append_rows(table, batch, author="test")
    draft = ColumnDraft(name="one", kind="template", template="1 {{word}}")
    await engine.columns.add(table, draft, author="test")
    return table


async def status(served: Served, table: CollectionId) -> WorkflowExecutionStatus | None:
    with contextlib.suppress(RPCError):
        return (await served.client.get_workflow_handle(setup_id(table)).describe()).status
    return None


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await condition():
            await asyncio.sleep(0.05)


async def history_events(served: Served, table: CollectionId) -> int:
    history = await served.client.get_workflow_handle(setup_id(table)).fetch_history()
    return len(history.events)


async def fill(served: Served, table: CollectionId, *, force: bool = False) -> None:
    worker = served.engine.worker()
    worker._finalizer._sink = served.bus
    running = asyncio.create_task(worker.run())
    await served.dispatcher.dispatch(Request(collection_id=table, force=force))

    async def idle() -> bool:
        return await served.engine.queue.is_idle(table)

    await until(idle)
    worker.stop()
    await running


async def test_a_dispatch_starts_the_one_workflow_of_its_collection_which_ends_when_idle(
    served: Served,
) -> None:
    table = await words(served.engine, "one", 2_000)
    await fill(served, table)

    async def completed() -> bool:
        return await status(served, table) is WorkflowExecutionStatus.COMPLETED

    await until(completed)
    frames = await served.bus.frames(table, "0", block_seconds=0.01)
    assert sum(frame.counts.get("ready", 0) for _, frame in frames) == 2_000
    shared = await served.bus.find_shared(table)
    assert shared is not None
    assert b'"one"' in shared


async def test_histories_that_are_over_are_forgotten_and_open_ones_stay(served: Served) -> None:
    table = await words(served.engine, "one", 100)
    await fill(served, table)

    async def closed() -> list[str]:
        query = f'WorkflowId = "{setup_id(table)}" AND ExecutionStatus != "Running"'
        return [found.run_id async for found in served.client.list_workflows(query)]

    async def is_listed() -> bool:
        return bool(await closed())

    await until(is_listed)
    (run_id,) = await closed()
    assert await forget_histories(served.client, older_than=timedelta(hours=1)) == 0
    assert await forget_histories(served.client, older_than=timedelta()) >= 1

    async def is_gone() -> bool:
        try:
            await served.client.get_workflow_handle(setup_id(table), run_id=run_id).describe()
        except RPCError as error:
            return error.status is RPCStatusCode.NOT_FOUND
        return False

    await until(is_gone)
    janitor = await served.client.get_workflow_handle(JANITOR_ID).describe()
    assert janitor.status is WorkflowExecutionStatus.RUNNING


async def test_frames_of_a_second_fill_tell_only_of_the_second(served: Served) -> None:
    table = await words(served.engine, "twice", 500)
    await fill(served, table)

    async def completed() -> bool:
        return await status(served, table) is WorkflowExecutionStatus.COMPLETED

    await until(completed)
    last, _ = (await served.bus.frames(table, "0", block_seconds=0.01))[-1]
    await fill(served, table, force=True)

    async def told() -> bool:
        frames = await served.bus.frames(table, last, block_seconds=0.01)
        return sum(frame.counts.get("ready", 0) for _, frame in frames) >= 500

    await until(told)
    await until(completed)
    frames = await served.bus.frames(table, last, block_seconds=0.01)
    assert sum(frame.counts.get("ready", 0) for _, frame in frames) == 500


async def test_what_was_spent_is_summed_up_once(served: Served) -> None:
    table = await words(served.engine, "spent", 30)
    column = (await served.engine.schema(table)).ids["one"]
    async with served.engine.pool.connection() as connection:
        await connection.execute(
            "insert into usage (collection_id, column_id, calls, input_tokens, output_tokens,"
            " cost_usd) select %s, %s, 1, 10, 2, 0.25 from generate_series(1, 8)",
            [table, column],
        )
    await asyncio.gather(*(roll_up_usage(served.engine.pool, table) for _ in range(4)))
    await fill(served, table)

    async def completed() -> bool:
        return await status(served, table) is WorkflowExecutionStatus.COMPLETED

    await until(completed)
    async with served.engine.pool.connection() as connection:
        left = await (await connection.execute("select count(*) from usage")).fetchall()
        totals = await (
            await connection.execute(
                "select sum(calls), sum(input_tokens), sum(output_tokens), sum(cost_usd)"
                " from usage_totals where collection_id = %s",
                [table],
            )
        ).fetchall()
    assert left == [(0,)]
    assert totals == [(8, 80, 16, 2.0)]


async def test_without_redis_the_workflow_ends_and_its_history_stays_short(
    engine: Engine, stack: Endpoints
) -> None:
    async with serving(engine, stack, redis_url="redis://127.0.0.1:1") as served:
        table = await words(engine, "alone", 2_000)
        await fill(served, table)

        async def completed() -> bool:
            return await status(served, table) is WorkflowExecutionStatus.COMPLETED

        await until(completed)
        assert await engine.counts(table) == {"ready": 2_000}
        assert await history_events(served, table) < 200


async def test_a_thousand_announcements_are_a_few_signals(served: Served) -> None:
    table = await words(served.engine, "burst", 1)
    for _ in range(1_000):
        await served.announcer.announce(table)
    await served.announcer.aclose()
    assert served.announcer.signals_sent <= 2


async def test_the_janitor_takes_back_what_a_dead_worker_held_and_starts_the_workflow(
    served: Served,
) -> None:
    table = await words(served.engine, "dead", 50)
    await served.engine.dispatcher.dispatch(Request(collection_id=table))  # announces nothing
    held = await served.engine.queue.claim("dead", _everything(), lease_seconds=0.2)
    assert len(held) == 50

    async def started() -> bool:
        return await status(served, table) is not None

    async def back() -> bool:
        lanes = await served.engine.queue.backlog(table)
        return sum(lane.depth for lane in lanes) == 50

    await until(back)
    await until(started)
    await served.engine.settle(table)
    assert await served.engine.value(table, held[0].row_id, "one") == "1 w0"


async def test_a_flushed_redis_costs_no_cell(served: Served) -> None:
    table = await words(served.engine, "flushed", 8_000)
    client = aioredis.Redis.from_url(served.redis_url)
    filling = asyncio.create_task(fill(served, table))
    for _ in range(5):
        await client.flushall()
        await asyncio.sleep(0.05)
    await filling
    await client.aclose()
    progress = await served.engine.counts(table)
    assert progress == {"ready": 8_000}


@pytest.mark.slow
async def test_a_workflow_that_served_a_hundred_thousand_cells_has_a_short_history(
    served: Served,
) -> None:
    table = await words(served.engine, "large", 100_000)
    await fill(served, table)

    async def completed() -> bool:
        return await status(served, table) is WorkflowExecutionStatus.COMPLETED

    await until(completed)
    events = await history_events(served, table)
    print(f"history events: {events}")  # noqa: T201 - a figure for the measurements
    assert events < 10_000


def _everything() -> list[Capacity]:
    return [
        Capacity(cost_class=name, interactive_max=1_000, bulk_max=1_000, total_max=1_000)
        for name in ("instant", "local", "remote")
    ]
