"""The cell worker: claims, computes, finalizes; knows neither Temporal nor the API.

It may be killed at any moment: what it held is claimed by another when its lease runs out. It
claims no more than it can start soon, keeps a part of its room for each lane, waits idle on a
notification (with a slow poll as the net), and drains when it is told to stop.
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import psycopg
import structlog

from everfill.autofill.filler import Filler, faulted
from everfill.autofill.finalizer import CompletionSink, Finalizer, Result
from everfill.autofill.queue import Capacity, ClaimedCell, Queue
from everfill.compute.protocol import ComputeContext, CostClass
from everfill.infra.blobs import Blobs
from everfill.infra.postgres import OUTAGES, Pool, pass_cancellation
from everfill.kernel.clock import Clock
from everfill.kernel.config import WorkerSettings
from everfill.kernel.ids import CollectionId
from everfill.kernel.tasks import end_tasks

__all__ = ["CellWorker"]

INSTANT_ROOM_CELLS: Final = 4_000
"""Instant cells in hand: about a tenth of a second of work, so that while one batch is computed
others are on their way home."""
INSTANT_CLAIM_CELLS: Final = 500
LOCAL_ROOM_CELLS: Final = 64
"""Local cells in hand: two batches, a second or two of work."""
RESERVED_SHARE: Final = 0.1
"""The part of a worker's room that each lane leaves to the other."""
_TICK_SECONDS: Final = 1.0
_OUTAGE_SECONDS: Final = 0.5
_LOG: Final = structlog.stdlib.get_logger()
_RANDOM: Final = random.SystemRandom()


class CellWorker:
    """One worker.

    Args:
        pool: Connections to Postgres.
        queue: Over the same pool.
        blobs: Where large values and files are.
        sink: Told of what came home.
        context: What kinds may use.
        settings: Slots, lease, poll, drain.
        clock: Measures calls.
    """

    def __init__(
        self,
        *,
        pool: Pool,
        queue: Queue,
        blobs: Blobs,
        sink: CompletionSink,
        context: ComputeContext,
        settings: WorkerSettings,
        clock: Clock | None = None,
    ) -> None:
        self.name = f"{socket.gethostname()}-{os.getpid()}"
        self._pool = pool
        self._queue = queue
        self._settings = settings
        self._finalizer = Finalizer(queue, sink, self._done)
        self._room = {
            CostClass.INSTANT: INSTANT_ROOM_CELLS,
            CostClass.LOCAL: LOCAL_ROOM_CELLS,
            CostClass.REMOTE: settings.slots,
        }
        self._held: Counter[str] = Counter()
        self._held_by_lane: Counter[tuple[str, bool]] = Counter()
        self._filler = Filler(pool=pool, blobs=blobs, context=context, clock=clock)
        self._tasks: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Claim nothing more; `run` returns when what is in hand is done or given back."""
        self._stopping.set()
        self._wake.set()

    async def run(self) -> None:
        """Work until told to stop."""
        _LOG.info("cell_worker.started", worker=self.name, slots=self._settings.slots)
        helpers = [
            asyncio.create_task(self._forever(job))
            for job in (self._listen, self._renew_leases, self._mend)
        ]
        try:
            await self._claim_until_stopped()
            await self._drain()
        finally:
            await end_tasks(helpers)
            await self._filler.aclose()
            _LOG.info("cell_worker.stopped", worker=self.name)

    async def _claim_until_stopped(self) -> None:
        while not self._stopping.is_set():
            self._wake.clear()
            capacities = self._capacities()
            cells = await self._claim(capacities) if capacities else []
            if cells:
                self._start(cells)
            else:
                await self._idle()

    async def _claim(self, capacities: Sequence[Capacity]) -> list[ClaimedCell]:
        try:
            return await self._queue.claim(
                self.name, capacities, lease_seconds=self._settings.lease_seconds
            )
        except OUTAGES as error:
            pass_cancellation()
            _LOG.warning("cell_worker.claim_failed", worker=self.name, error=str(error))
            await asyncio.sleep(_OUTAGE_SECONDS)
            return []

    def _capacities(self) -> list[Capacity]:
        """What can be started soon; nothing for a class until a worthwhile part of it is free."""
        wanted: list[Capacity] = []
        for cost_class, room in self._room.items():
            free = room - self._held[cost_class]
            if cost_class is CostClass.INSTANT:
                free = INSTANT_CLAIM_CELLS if free >= INSTANT_CLAIM_CELLS else 0
            if free > 0:
                wanted.append(self._capacity(cost_class, room, free))
        return wanted

    def _capacity(self, cost_class: CostClass, room: int, free: int) -> Capacity:
        reserved = int(room * RESERVED_SHARE) or int(room > 1)
        held = self._held_by_lane
        return Capacity(
            cost_class=cost_class,
            interactive_max=max(0, min(free, room - reserved - held[cost_class, True])),
            bulk_max=max(0, min(free, room - reserved - held[cost_class, False])),
            total_max=free,
        )

    def _start(self, cells: Sequence[ClaimedCell]) -> None:
        self._finalizer.expect(Counter(cell.claim_id for cell in cells))
        self._held.update(cell.cost_class for cell in cells)
        self._held_by_lane.update((cell.cost_class, cell.interactive) for cell in cells)
        by_collection: defaultdict[CollectionId, list[ClaimedCell]] = defaultdict(list)
        for cell in cells:
            by_collection[cell.collection_id].append(cell)
        for collection_id, group in by_collection.items():
            self._spawn(self._fill(collection_id, group))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _idle(self) -> None:
        """Wait for a notification, a freed slot, or the poll."""
        seconds = self._settings.poll_seconds * _RANDOM.uniform(0.75, 1.25)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), seconds)

    def _done(self, counts: Mapping[str, int]) -> None:
        self._held.subtract(counts)
        self._wake.set()

    def _home(self, results: Sequence[Result]) -> None:
        for result in results:
            cell = result.outcome.cell
            self._held_by_lane[cell.cost_class, cell.interactive] -= 1
        self._finalizer.put(results)

    async def _fill(self, collection_id: CollectionId, cells: Sequence[ClaimedCell]) -> None:
        """Fill cells and send them home; a fault of ours fails them in passing, visibly."""
        left = {(cell.row_id, cell.column_id): cell for cell in cells}
        try:
            async for results in self._filler.fill(collection_id, cells):
                for result in results:
                    del left[result.outcome.cell.row_id, result.outcome.cell.column_id]
                self._home(results)
        except Exception as error:  # noqa: BLE001 - a fault of ours must not hold cells for ever
            _LOG.exception("cell_worker.fault", collection_id=collection_id)
            self._home([faulted(cell, error) for cell in left.values()])

    async def _drain(self) -> None:
        """Let what is in hand end; what does not end in time is given back."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._settings.drain_seconds):
                while self._tasks:
                    await asyncio.wait(self._tasks)
                await self._finalizer.drained()
        await end_tasks(self._tasks)
        await self._finalizer.cancel()
        with suppress(*OUTAGES):
            given_back = await self._queue.give_back_all(self._finalizer.claims)
            _LOG.info("cell_worker.drained", worker=self.name, given_back=given_back)

    # -- beside the loop --------------------------------------------------------------------------

    async def _forever(self, job: Callable[[], Awaitable[None]]) -> None:
        """Run a job again and again; an outage delays it, nothing else ends it."""
        while True:
            try:
                await job()
            except OUTAGES as error:
                pass_cancellation()
                _LOG.warning("cell_worker.outage", worker=self.name, error=str(error))
                await asyncio.sleep(_OUTAGE_SECONDS)

    async def _listen(self) -> None:
        """Wake at every notification that there is work."""
        url = self._pool.conninfo
        assert isinstance(url, str), "open_pool gives a connection string"
        connection = await psycopg.AsyncConnection.connect(url, autocommit=True)
        async with connection:
            await connection.execute(b"listen everfill_queue")
            async for _ in connection.notifies():
                self._wake.set()

    async def _renew_leases(self) -> None:
        await asyncio.sleep(self._settings.lease_seconds / 3)
        if claims := self._finalizer.claims:
            await self._queue.renew(claims, lease_seconds=self._settings.lease_seconds)

    async def _mend(self) -> None:
        """Put back what failed in passing and is due, and what dead workers held.

        Any worker does it for all: work goes on while Temporal, and so the janitor, is away.
        """
        await asyncio.sleep(_TICK_SECONDS * _RANDOM.uniform(0.5, 1.5))
        await self._queue.retry_due()
        await self._queue.reclaim()
