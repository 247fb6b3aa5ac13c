"""When workflows go on, end and continue as new: a real Temporal, activities of the test's own."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from structlog.testing import capture_logs
from temporalio import activity
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowHandle
from temporalio.worker import Worker

from everfill.autofill.announcer import TemporalAnnouncer
from everfill.autofill.bus import Bus
from everfill.autofill.janitor_workflow import JanitorWorkflow
from everfill.autofill.setup_workflow import HISTORY_EVENTS_MAX, SetupWorkflow
from everfill.autofill.workflow_names import (
    JANITOR_WORKFLOW,
    SETUP_WORKFLOW,
    WORK_SIGNAL,
    JanitorStart,
    ServedCollection,
    SetupStart,
    Ticked,
    setup_id,
)
from everfill.infra.stack import Endpoints
from everfill.kernel.config import TemporalSettings
from everfill.kernel.errors import UnavailableError
from everfill.kernel.ids import CollectionId

PATIENCE_SECONDS = 120
_tables = itertools.count(2_000_001)


@dataclass
class Script:
    """Plays the activities: serves until `busy` runs out, and lets a test step in."""

    busy: int = 0
    calls: list[str] = field(default_factory=list)
    drained: int = 0
    on_roll_up: Callable[[], Awaitable[None]] | None = None

    @activity.defn(name="share_collection")
    async def share(self, collection_id: int) -> None:
        assert collection_id
        self.calls.append("share")

    @activity.defn(name="serve_collection")
    async def serve(self, start: SetupStart) -> ServedCollection:
        assert start.after == (f"{self.drained}-0" if self.drained else "0")
        self.calls.append("serve")
        if self.busy:
            self.busy -= 1
            self.drained += 1
        return ServedCollection(
            after=f"{self.drained}-0" if self.drained else "0", idle=not self.busy
        )

    @activity.defn(name="roll_up_usage")
    async def roll_up(self, collection_id: int) -> None:
        assert collection_id
        self.calls.append("roll_up")
        if self.on_roll_up:
            await self.on_roll_up()


@asynccontextmanager
async def worker(client: Client, script: Script) -> AsyncIterator[str]:
    """A worker on a task queue of its own; gives that queue's name."""
    name = f"rules-{os.getpid()}-{id(script)}"
    activities = [script.share, script.serve, script.roll_up]
    async with Worker(client, task_queue=name, workflows=[SetupWorkflow], activities=activities):
        yield name


@pytest.fixture
def table() -> CollectionId:
    return CollectionId(next(_tables))


async def start(client: Client, queue: str, table: CollectionId) -> WorkflowHandle[None, None]:
    return await client.start_workflow(
        SETUP_WORKFLOW,
        SetupStart(collection_id=table),
        id=setup_id(table),
        task_queue=queue,
        start_signal=WORK_SIGNAL,
    )


async def result(handle: WorkflowHandle[None, None]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        await handle.result()


async def test_an_idle_collection_is_looked_at_twice_before_its_workflow_ends(
    stack: Endpoints, table: CollectionId
) -> None:
    client = await Client.connect(stack.temporal_address)
    script = Script(busy=3)
    async with worker(client, script) as queue:
        await result(await start(client, queue, table))
    assert script.calls == ["share", *["serve"] * 4, "roll_up"]


async def test_a_signal_while_a_workflow_ends_keeps_it_alive(
    stack: Endpoints, table: CollectionId
) -> None:
    client = await Client.connect(stack.temporal_address)
    script = Script()
    async with worker(client, script) as queue:
        handle = await start(client, queue, table)

        async def more_work() -> None:
            script.on_roll_up = None
            script.busy = 2
            await handle.signal(WORK_SIGNAL)

        script.on_roll_up = more_work
        await result(handle)
    assert script.calls == ["share", *["serve"] * 2, "roll_up", *["serve"] * 3, "roll_up"]
    assert script.busy == 0


async def test_a_signal_after_the_end_starts_a_new_workflow(
    stack: Endpoints, table: CollectionId
) -> None:
    client = await Client.connect(stack.temporal_address)
    script = Script()
    async with worker(client, script) as queue:
        first = await start(client, queue, table)
        await result(first)
        second = await start(client, queue, table)
        await result(second)
    assert first.result_run_id != second.result_run_id
    assert script.calls.count("roll_up") == 2


@pytest.mark.slow
async def test_a_workflow_that_drained_a_hundred_thousand_cells_continued_as_new(
    stack: Endpoints, table: CollectionId
) -> None:
    """A thousand turns of a hundred cells, which at four seconds each were an hour's work."""
    client = await Client.connect(stack.temporal_address)
    script = Script(busy=1_000)
    async with worker(client, script) as queue:
        handle = await start(client, queue, table)
        await result(handle)
    events = [len((await run.fetch_history()).events) async for run in _runs(client, handle)]
    print(f"runs: {len(events)}, events of each: {events}")  # noqa: T201 - a figure
    assert script.drained == 1_000
    assert len(events) >= 3
    assert max(events) <= HISTORY_EVENTS_MAX + 20


async def _runs(
    client: Client, handle: WorkflowHandle[None, None]
) -> AsyncIterator[WorkflowHandle[None, None]]:
    """The runs of a workflow from the first to the last."""
    run_id = handle.result_run_id
    while run_id:
        run = client.get_workflow_handle(handle.id, run_id=run_id)
        yield run
        last = (await run.fetch_history()).events[-1]
        is_new = last.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW
        attributes = last.workflow_execution_continued_as_new_event_attributes
        run_id = attributes.new_execution_run_id if is_new else None


async def test_the_janitor_ticks_as_often_as_its_last_tick_said_and_tells_what_it_healed(
    stack: Endpoints,
) -> None:
    client = await Client.connect(stack.temporal_address)
    ticks = 0
    enough = asyncio.Event()

    @activity.defn(name="heal")
    async def heal() -> Ticked:
        nonlocal ticks
        ticks += 1
        if ticks == 3:
            enough.set()
        report: dict[str, int | list[str]] = {"reclaimed": ticks, "failed_steps": ["retry"]}
        return Ticked(report=report, next_in_seconds=0.01 if ticks < 3 else 3_600)

    queue = f"janitor-{os.getpid()}-{id(enough)}"
    async with Worker(client, task_queue=queue, workflows=[JanitorWorkflow], activities=[heal]):
        handle = await client.start_workflow(
            JANITOR_WORKFLOW, JanitorStart(), id=queue, task_queue=queue
        )
        async with asyncio.timeout(PATIENCE_SECONDS):
            await enough.wait()
            while (await handle.query("last_report")).get("reclaimed") != 3:
                await asyncio.sleep(0.02)
        report = await handle.query("last_report")
        await handle.terminate()
    assert report == {"reclaimed": 3, "failed_steps": ["retry"]}
    assert ticks == 3


async def test_a_thousand_edits_a_second_in_two_processes_are_about_one_signal_a_second(
    stack: Endpoints, table: CollectionId
) -> None:
    client = await Client.connect(stack.temporal_address)
    settings = TemporalSettings(task_queue=f"nobody-{os.getpid()}")
    async with (
        Bus.open(stack.redis_url) as bus,
        TemporalAnnouncer.open(settings, stack.temporal_address, bus) as one,
        TemporalAnnouncer.open(settings, stack.temporal_address, bus) as other,
    ):
        loop = asyncio.get_running_loop()
        began = loop.time()
        for _ in range(2_000):
            await one.announce(table)
            await other.announce(table)
            await asyncio.sleep(0.001)
        await one.aclose()
        await other.aclose()
        seconds = loop.time() - began
    handle = client.get_workflow_handle(setup_id(table))
    history = await handle.fetch_history()
    await handle.terminate()
    signals = [
        event
        for event in history.events
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED
    ]
    assert 2 <= len(signals) <= seconds + 1
    assert one.signals_sent + other.signals_sent == len(signals)


async def test_a_temporal_that_is_away_is_asked_once_and_fails_no_edit(
    stack: Endpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    async def refuse(_: TemporalSettings, address: str) -> Client:
        asked.append(address)
        await asyncio.sleep(0.05)
        raise UnavailableError("temporal_unavailable", "Temporal does not answer.")

    monkeypatch.setattr("everfill.infra.temporal.connect_temporal", refuse)
    async with (
        Bus.open(stack.redis_url) as bus,
        TemporalAnnouncer.open(TemporalSettings(), "127.0.0.1:1", bus) as announcer,
    ):
        with capture_logs() as logs:
            for number in range(5_000):
                await announcer.announce(CollectionId(3_000_000 + number))
            assert len(announcer._tasks) == 100
            await announcer.aclose()
    assert asked == ["127.0.0.1:1"]
    assert [entry["event"] for entry in logs] == ["announce.failed"]
