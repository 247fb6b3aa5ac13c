"""What the workflows have done for them: each a short, idempotent look at Postgres and Redis."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import Any, Final

import msgspec
from temporalio import activity

from everfill.autofill.announcer import TemporalAnnouncer
from everfill.autofill.bus import Bus, Frame
from everfill.autofill.janitor import Janitor, roll_up_usage
from everfill.autofill.queue import Queue
from everfill.infra.postgres import Pool
from everfill.kernel.errors import NotFoundError
from everfill.kernel.ids import CollectionId
from everfill.tables.definitions import Definitions

__all__ = ["Activities"]

SERVE_SECONDS: Final = 4.0
"""One activity drains completions for this long: a few events of history for seconds of work."""
_FRAME_SECONDS: Final = 0.5
_DRAIN_ENTRIES_MAX: Final = 1_000
_HEARTBEAT_SECONDS: Final = 2.0


class Activities:
    """The activities of one setup worker."""

    def __init__(
        self, pool: Pool, queue: Queue, bus: Bus, janitor: Janitor, announcer: TemporalAnnouncer
    ) -> None:
        self._pool = pool
        self._queue = queue
        self._bus = bus
        self._janitor = janitor
        self._announcer = announcer

    @activity.defn(name="share_collection")
    async def share_collection(self, collection_id: int) -> None:
        """Renew the shared cache: the columns and where the collection belongs."""
        async with self._pool.connection() as connection:
            definitions = Definitions(connection)
            try:
                collection = await definitions.get_collection_by_id(CollectionId(collection_id))
                schema = await definitions.load_schema(CollectionId(collection_id))
            except NotFoundError:
                return
        content = {
            "namespace": collection.namespace,
            "cap_cells": collection.cap_cells,
            "schema_version": schema.version,
            "columns": [msgspec.to_builtins(column) for column in schema.columns],
        }
        await self._bus.share(CollectionId(collection_id), msgspec.json.encode(content))

    @activity.defn(name="serve_collection")
    async def serve_collection(self, collection_id: int, after: str) -> tuple[str, bool]:
        """Drain completions for some seconds, a frame for each half second that had any.

        Returns:
            The last completion drained, and whether the collection is idle.
        """
        key = CollectionId(collection_id)
        for _ in range(int(SERVE_SECONDS / _FRAME_SECONDS)):
            activity.heartbeat()
            drained = await self._bus.drain(
                key, after, count_max=_DRAIN_ENTRIES_MAX, block_seconds=_FRAME_SECONDS
            )
            after = drained.after
            if drained.completions:
                await self._bus.emit(
                    Frame(
                        collection_id=collection_id,
                        counts=drained.counts,
                        input_tokens=drained.input_tokens,
                        output_tokens=drained.output_tokens,
                        cost_usd=drained.cost_usd,
                    )
                )
            elif await self._queue.is_idle(key):
                return after, True
        await roll_up_usage(self._pool, key)
        return after, await self._queue.is_idle(key)

    @activity.defn(name="roll_up_usage")
    async def roll_up_usage(self, collection_id: int) -> None:
        """Sum up what the collection spent."""
        await roll_up_usage(self._pool, CollectionId(collection_id))

    @activity.defn(name="heal")
    async def heal(self) -> dict[str, Any]:
        """One tick of the janitor, and a setup workflow for every collection that has work."""
        async with _heartbeats():
            report = await self._janitor.tick()
            for collection_id in await self._janitor.active_collections():
                await self._announcer.announce(collection_id)
        return asdict(report)


@asynccontextmanager
async def _heartbeats() -> AsyncGenerator[None, None]:
    """Tell Temporal that the activity is alive, so that a killed one is soon started elsewhere."""

    async def beat() -> None:
        while True:
            activity.heartbeat()
            await asyncio.sleep(_HEARTBEAT_SECONDS)

    beating = asyncio.create_task(beat())
    try:
        yield
    finally:
        beating.cancel()
