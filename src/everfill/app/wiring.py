"""Everfill, wired: what the command line, the API and the setup worker open."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from everfill.autofill.announcer import TemporalAnnouncer
from everfill.autofill.bus import Bus
from everfill.autofill.columns import ColumnKeeper
from everfill.autofill.dispatch import Dispatcher
from everfill.autofill.edits import Edits
from everfill.autofill.immediate import Immediate
from everfill.autofill.queue import Queue
from everfill.compute.protocol import ComputeContext
from everfill.infra.blobs import Blobs, open_blobs
from everfill.infra.postgres import Pool, migrate, open_pool
from everfill.infra.stack import Endpoints, open_stack
from everfill.kernel.config import Settings

__all__ = ["App", "open_app"]


@dataclass(frozen=True, slots=True, kw_only=True)
class App:
    """Everfill, wired."""

    settings: Settings
    endpoints: Endpoints
    pool: Pool
    blobs: Blobs
    bus: Bus
    announcer: TemporalAnnouncer
    queue: Queue
    dispatcher: Dispatcher
    edits: Edits
    columns: ColumnKeeper


@asynccontextmanager
async def open_app(settings: Settings, *, name: str = "everfill") -> AsyncGenerator[App, None]:
    """Start or join the servers, migrate, and wire everything together.

    Raises:
        UnavailableError: A server does not start or does not answer.
    """
    async with AsyncExitStack() as stack:
        endpoints = await stack.enter_async_context(open_stack(settings))
        await migrate(endpoints.postgres_url)
        pool = await stack.enter_async_context(
            open_pool(endpoints.postgres_url, size_max=settings.postgres.pool_max, name=name)
        )
        bus = await stack.enter_async_context(Bus.open(endpoints.redis_url))
        announcer = await stack.enter_async_context(
            TemporalAnnouncer.open(settings.temporal, endpoints.temporal_address, bus)
        )
        blobs = open_blobs(settings)
        queue = Queue(pool)
        context = ComputeContext(settings=settings, files=blobs, board=bus)
        immediate = Immediate(blobs=blobs, context=context, sink=bus)
        dispatcher = Dispatcher(pool, queue, blobs, announcer, immediate)
        yield App(
            settings=settings,
            endpoints=endpoints,
            pool=pool,
            blobs=blobs,
            bus=bus,
            announcer=announcer,
            queue=queue,
            dispatcher=dispatcher,
            edits=Edits(pool, queue, blobs, dispatcher),
            columns=ColumnKeeper(pool, queue),
        )
