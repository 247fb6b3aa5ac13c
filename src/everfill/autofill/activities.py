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
from everfill.autofill.bus import COMPLETIONS_MAX, Bus, Drained, Frame
from everfill.autofill.janitor import Janitor, roll_up_usage
from everfill.autofill.queue import Queue
from everfill.autofill.workflow_names import ServedCollection, SetupStart, Ticked
from everfill.infra.postgres import Pool
from everfill.kernel.errors import NotFoundError
from everfill.kernel.ids import CollectionId
from everfill.tables.definitions import Collection, Definitions
from everfill.tables.schema import Schema

__all__ = ["Activities"]

SERVE_SECONDS: Final = 4.0
"""One activity drains completions for this long: a few events of history for seconds of work."""
FRAME_SECONDS: Final = 0.5
"""Time between two frames of a collection, whatever the number of completions."""
SHARED_VERSION: Final = 1
_DRAIN_WAIT_SECONDS: Final = 0.001  # what has come meanwhile, and no more
_HEARTBEAT_SECONDS: Final = 2.0


class Activities:
    """The activities of one setup worker.

    Args:
        pool: Connections to Postgres.
        queue: Says whether a collection is idle.
        bus: Where completions come from and frames go to.
        janitor: What one tick does.
        announcer: Starts the setup workflows of collections that have work.
        tick_seconds: Between two ticks.
    """

    def __init__(
        self,
        pool: Pool,
        queue: Queue,
        bus: Bus,
        janitor: Janitor,
        announcer: TemporalAnnouncer,
        *,
        tick_seconds: float,
    ) -> None:
        self._pool = pool
        self._queue = queue
        self._bus = bus
        self._janitor = janitor
        self._announcer = announcer
        self._tick_seconds = tick_seconds

    @activity.defn(name="share_collection")
    async def share_collection(self, collection_id: int) -> None:
        """Renew the shared cache: the columns, their DAG, and where the collection belongs."""
        async with self._pool.connection() as connection:
            definitions = Definitions(connection)
            try:
                collection = await definitions.get_collection_by_id(CollectionId(collection_id))
                schema = await definitions.load_schema(CollectionId(collection_id))
            except NotFoundError:
                return
        content = msgspec.json.encode(_shared(collection, schema))
        await self._bus.share(CollectionId(collection_id), content)

    @activity.defn(name="serve_collection")
    async def serve_collection(self, start: SetupStart) -> ServedCollection:
        """Drain completions for some seconds, a frame for each half second that had any.

        Started again, it goes on where it was: what has been told has left the stream.
        """
        key = CollectionId(start.collection_id)
        after = start.after
        for _ in range(int(SERVE_SECONDS / FRAME_SECONDS)):
            activity.heartbeat()
            await asyncio.sleep(FRAME_SECONDS)
            drained = await self._bus.drain(
                key, after, count_max=COMPLETIONS_MAX, block_seconds=_DRAIN_WAIT_SECONDS
            )
            if drained.after != after:
                after = drained.after
                await self._tell(key, drained)
            elif await self._queue.is_idle(key):
                return ServedCollection(after=after, idle=True)
        await roll_up_usage(self._pool, key)
        return ServedCollection(after=after, idle=await self._queue.is_idle(key))

    @activity.defn(name="roll_up_usage")
    async def roll_up_usage(self, collection_id: int) -> None:
        """Sum up what the collection spent."""
        await roll_up_usage(self._pool, CollectionId(collection_id))

    @activity.defn(name="heal")
    async def heal(self) -> Ticked:
        """One tick of the janitor, and a setup workflow for every collection that has work."""
        async with _heartbeats():
            report = await self._janitor.tick()
            for collection_id in await self._janitor.active_collections():
                await self._announcer.announce(collection_id)
        return Ticked(report=asdict(report), next_in_seconds=self._tick_seconds)

    async def _tell(self, collection_id: CollectionId, drained: Drained) -> None:
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
        await self._bus.forget(collection_id, drained.after)


def _shared(collection: Collection, schema: Schema) -> dict[str, Any]:
    return {
        "version": SHARED_VERSION,
        "namespace": collection.namespace,
        "cap_cells": collection.cap_cells,
        "schema_version": schema.version,
        "columns": [msgspec.to_builtins(column) for column in schema.columns],
        "edges": [
            [key, column.column_id] for column in schema.computed for key in column.upstreams
        ],
    }


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
