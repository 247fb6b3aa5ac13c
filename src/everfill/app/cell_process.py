"""The cell worker's process: Postgres, Redis and blobs, and no Temporal."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from everfill.autofill.bus import Bus
from everfill.autofill.cell_worker import CellWorker
from everfill.autofill.queue import Queue
from everfill.compute.protocol import ComputeContext
from everfill.infra.blobs import open_blobs
from everfill.infra.postgres import migrate, open_pool
from everfill.infra.stack import open_stack
from everfill.kernel.config import Settings

__all__ = ["run_cell_worker"]


async def run_cell_worker(settings: Settings, stop: asyncio.Event) -> None:
    """A cell worker as a process of its own: it never touches Temporal.

    Args:
        settings: Its slots, lease and drain are `settings.worker`.
        stop: Set by the signal that ends the process.
    """
    async with AsyncExitStack() as stack:
        endpoints = await stack.enter_async_context(open_stack(settings))
        await migrate(endpoints.postgres_url)
        pool = await stack.enter_async_context(
            open_pool(
                endpoints.postgres_url,
                size_max=settings.postgres.pool_max,
                name="everfill-cell-worker",
            )
        )
        bus = await stack.enter_async_context(Bus.open(endpoints.redis_url))
        blobs = open_blobs(settings)
        worker = CellWorker(
            pool=pool,
            queue=Queue(pool),
            blobs=blobs,
            sink=bus,
            context=ComputeContext(settings=settings, files=blobs, board=bus),
            settings=settings.worker,
        )
        stopper = asyncio.create_task(_stop_when(stop, worker))
        try:
            await worker.run()
        finally:
            stopper.cancel()


async def _stop_when(stop: asyncio.Event, worker: CellWorker) -> None:
    await stop.wait()
    worker.stop()
