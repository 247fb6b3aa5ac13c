"""One size of the naive design: run until it completes, breaks or runs out of time."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, TypeAlias

from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.service import RPCError
from temporalio.worker import Worker

from everfill.bench.naive.history import Health, Histories, last_failure, look, read_histories
from everfill.bench.naive.plan import NaivePlan, Shape, Size
from everfill.bench.naive.report import Outcome, Trial
from everfill.bench.naive.usage import ServerPlace, Usage, watch_usage
from everfill.bench.naive.workflow import (
    CellActivities,
    GatheredFill,
    GatheredStart,
    WindowedFill,
    WindowedStart,
    word,
)

__all__ = ["Stall", "run_trial"]

_LOOK_SECONDS: Final = 1.0
_TASK_TRIES_MAX: Final = 3
_STALL_SECONDS: Final = 10.0
"""A workflow task that failed three times, while no event was added for so long, fails for good;
the server would try it for ever. While activities end, their events alone can make a task fail."""
_SHUTDOWN_SECONDS: Final = 20.0  # Temporal's core has been seen never to finish its own

_Handle: TypeAlias = "WorkflowHandle[Any, Any]"
_End: TypeAlias = "tuple[Outcome, str | None]"


async def run_trial(client: Client, plan: NaivePlan, size: Size, server: ServerPlace) -> Trial:
    """Run one size; however it ends is reported, not raised.

    A task queue and a worker of its own keep what a broken size leaves behind from the next one.
    """
    name = f"naive-{uuid.uuid4().hex}"
    activities, handle = CellActivities(), None
    async with _working(client, plan, name, activities):
        started = time.perf_counter()
        async with watch_usage(server) as usage:
            try:
                handle = await _start(client, plan, size, name)
                end = await _run_to_end(client, handle, plan, size)
            except RPCError as refused:
                end = (Outcome.BROKE, refused.message)
        seconds = time.perf_counter() - started
        histories = Histories()
        if handle is not None:
            await _terminate(handle)
            histories = await read_histories(client, handle.id, handle.first_execution_run_id or "")
    done = min(activities.calls, size.cells)
    return _trial(name, size, end, done, seconds, histories, usage)


@asynccontextmanager
async def _working(
    client: Client, plan: NaivePlan, task_queue: str, activities: CellActivities
) -> AsyncGenerator[None]:
    """Have a worker while the context is open; one that does not end in time is left behind."""
    worker = Worker(
        client,
        task_queue=task_queue,
        workflows=[GatheredFill, WindowedFill],
        activities=[activities.fill_cell],
        max_concurrent_activities=plan.slots,
        max_concurrent_activity_task_polls=plan.pollers,
        max_concurrent_workflow_task_polls=plan.pollers,
    )
    serving = asyncio.create_task(worker.run())
    try:
        yield
    finally:
        ending = asyncio.create_task(worker.shutdown())
        await asyncio.wait([serving, ending], timeout=_SHUTDOWN_SECONDS)
        for task in (serving, ending):
            task.cancel()
    if serving.done() and not serving.cancelled():
        serving.result()


async def _start(client: Client, plan: NaivePlan, size: Size, name: str) -> _Handle:
    """Start the workflow that a size asks for; its id is also its task queue."""
    if size.shape.is_repaired:
        start = WindowedStart(
            rows=size.rows,
            word_chars=plan.word_chars,
            in_flight_max=plan.in_flight_max,
            history_events_max=plan.history_events_max if size.shape is Shape.CONTINUED else None,
        )
        return await client.start_workflow(WindowedFill.run, start, id=name, task_queue=name)
    words = [word(row, plan.word_chars) for row in range(size.rows)]
    gathered = GatheredStart(words=words, columns=size.shape.columns)
    return await client.start_workflow(GatheredFill.run, gathered, id=name, task_queue=name)


async def _run_to_end(client: Client, handle: _Handle, plan: NaivePlan, size: Size) -> _End:
    """Wait for the result, looking now and then whether there can still be one."""
    deadline = time.monotonic() + plan.seconds_max
    stall = Stall()
    result = asyncio.create_task(handle.result())
    try:
        while True:
            left = deadline - time.monotonic()
            await asyncio.wait([result], timeout=max(0.0, min(_LOOK_SECONDS, left)))
            if result.done():
                return _judge(result, plan, size)
            if left <= 0:
                return Outcome.OUT_OF_TIME, None
            health = await look(client, handle.id)
            if health.is_closed:  # the wait in progress may have missed it; a new one does not
                result.cancel()
                result = asyncio.create_task(handle.result())
            elif stall.is_final(health, time.monotonic()):
                return Outcome.BROKE, await last_failure(client, handle.id)
    finally:
        result.cancel()


class Stall:
    """Tells a workflow that cannot go on from one that is slow."""

    def __init__(self) -> None:
        self._events = 0
        self._since = 0.0

    def is_final(self, health: Health, now: float) -> bool:
        """Whether the task kept failing and nothing was added to the history for long."""
        if health.task_tries < _TASK_TRIES_MAX or health.events != self._events:
            self._events, self._since = health.events, now
        return now - self._since >= _STALL_SECONDS


def _judge(result: asyncio.Task[object], plan: NaivePlan, size: Size) -> _End:
    """Whether every value is right, or in which words the server ended the workflow."""
    try:
        found = result.result()
    except WorkflowFailureError as failure:
        return Outcome.BROKE, str(failure.cause)
    if found != _expected(plan, size):
        return Outcome.BROKE, "it completed with wrong values"
    return Outcome.COMPLETED, None


def _expected(plan: NaivePlan, size: Size) -> object:
    """What a workflow must return: its values, or how many it found to be right."""
    if size.shape.is_repaired:
        return size.rows
    texts = (word(row, plan.word_chars) for row in range(size.rows))
    return [[f"1 {text}", f"2 1 {text}"][: size.shape.columns] for text in texts]


async def _terminate(handle: _Handle) -> None:
    with suppress(RPCError):  # it ended by itself
        await handle.terminate("the trial is over")


def _trial(
    name: str,
    size: Size,
    end: _End,
    cells_done: int,
    seconds: float,
    histories: Histories,
    usage: Usage,
) -> Trial:
    outcome, error = end
    return Trial(
        shape=size.shape,
        workflow_id=name,
        rows=size.rows,
        cells=size.cells,
        outcome=outcome,
        error=error,
        cells_done=cells_done,
        seconds=round(seconds, 3),
        cells_per_second=round(cells_done / seconds, 1),
        runs=histories.runs,
        history_events=histories.events,
        history_bytes=histories.bytes,
        failed_tasks=histories.failed_tasks,
        worker_cpu_seconds=round(usage.worker_cpu_seconds, 2),
        worker_memory_bytes=usage.worker_memory_bytes,
        server_cpu_seconds=_rounded(usage.server_cpu_seconds),
        server_memory_bytes=usage.server_memory_bytes,
        database_bytes=usage.database_bytes,
    )


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 2)
