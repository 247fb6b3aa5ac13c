"""Tells a collection's setup workflow that there is work: SignalWithStart, coalesced, best effort.

However many edits a second a collection takes, it is announced about once a second, by all
processes together. An announcement that is lost costs progress frames, no cell: cell workers do not
depend on it, and the janitor starts the workflow of every collection that is not idle.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import structlog

from everfill.autofill.bus import Bus
from everfill.autofill.workflow_names import SETUP_WORKFLOW, WORK_SIGNAL, SetupStart, setup_id
from everfill.kernel.clock import Clock, SystemClock
from everfill.kernel.config import TemporalSettings
from everfill.kernel.errors import UnavailableError
from everfill.kernel.ids import CollectionId

if TYPE_CHECKING:
    from temporalio.client import Client

__all__ = ["TemporalAnnouncer"]

TURN_SECONDS: Final = 1.0
"""A collection is announced once in this time, by all processes together."""
PAUSE_SECONDS: Final = 5.0
"""How long Temporal is left alone after it did not answer: the janitor makes up for it."""
RUN_SECONDS_MAX: Final = 3_600.0
"""A healthy run continues as new within half of this; one that is stuck, for instance because its
code changed incompatibly, ends by it and is started afresh."""
_SIGNAL_SECONDS: Final = 2.0
_UNDERWAY_MAX: Final = 100  # announcements of one process under way; more are left to the janitor
_CLOSE_SECONDS: Final = 2.0
_KNOWN_MAX: Final = 10_000  # collections remembered by one process; then all are forgotten
_LOG: Final = structlog.stdlib.get_logger()


class TemporalAnnouncer:
    """Announces collections in the background.

    Args:
        settings: How to connect.
        address: host:port of Temporal.
        bus: Shares turns between processes.
        clock: Measures turns of this process.
    """

    def __init__(
        self, settings: TemporalSettings, address: str, bus: Bus, clock: Clock | None = None
    ) -> None:
        self._settings = settings
        self._address = address
        self._bus = bus
        self._clock = clock or SystemClock()
        self._announced_at: dict[CollectionId, float] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._client: Client | None = None
        self._connecting = asyncio.Lock()
        self._is_out = False
        self._asked_again_at = 0.0
        self.signals_sent = 0

    @classmethod
    @asynccontextmanager
    async def open(
        cls, settings: TemporalSettings, address: str, bus: Bus
    ) -> AsyncGenerator[TemporalAnnouncer, None]:
        """An announcer that connects when it is first used, and ends what it began."""
        announcer = cls(settings, address, bus)
        try:
            yield announcer
        finally:
            await announcer.aclose()

    async def announce(self, collection_id: CollectionId) -> None:
        """Announce a collection, unless that was done within the last second."""
        now = self._clock.monotonic_seconds()
        if now < self._asked_again_at or len(self._tasks) >= _UNDERWAY_MAX:
            return
        if now - self._announced_at.get(collection_id, -TURN_SECONDS) < TURN_SECONDS:
            return
        if len(self._announced_at) >= _KNOWN_MAX:
            self._announced_at.clear()
        self._announced_at[collection_id] = now
        task = asyncio.create_task(self._announce(collection_id))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def aclose(self) -> None:
        """Wait briefly for announcements under way."""
        underway = set(self._tasks)
        if underway:
            _, late = await asyncio.wait(underway, timeout=_CLOSE_SECONDS)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def _announce(self, collection_id: CollectionId) -> None:
        if not await self._bus.take_turn(collection_id, seconds=TURN_SECONDS):
            return
        try:
            await self._signal(collection_id)
        except Exception as error:  # noqa: BLE001 - best effort: the janitor makes up for it
            self._fell_out(collection_id, error)
        else:
            self._is_out = False

    async def _signal(self, collection_id: CollectionId) -> None:
        from temporalio.common import WorkflowIDConflictPolicy  # noqa: PLC0415 - half a second

        client = await self._connect()
        await client.start_workflow(
            SETUP_WORKFLOW,
            SetupStart(collection_id=collection_id),
            id=setup_id(collection_id),
            task_queue=self._settings.task_queue,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            start_signal=WORK_SIGNAL,
            run_timeout=timedelta(seconds=RUN_SECONDS_MAX),
            rpc_timeout=timedelta(seconds=_SIGNAL_SECONDS),
        )
        self.signals_sent += 1

    async def _connect(self) -> Client:
        from everfill.infra.temporal import (  # noqa: PLC0415 - the client takes half a second
            connect_temporal,
        )

        async with self._connecting:
            if self._clock.monotonic_seconds() < self._asked_again_at:
                raise UnavailableError("temporal_unavailable", "Temporal did not answer just now.")
            if self._client is None:
                try:
                    self._client = await connect_temporal(self._settings, self._address)
                except UnavailableError:
                    self._pause()
                    raise
            return self._client

    def _fell_out(self, collection_id: CollectionId, error: Exception) -> None:
        if not self._is_out:
            _LOG.warning("announce.failed", collection_id=collection_id, error=str(error))
        self._is_out = True
        self._announced_at.pop(collection_id, None)
        self._pause()

    def _pause(self) -> None:
        self._asked_again_at = self._clock.monotonic_seconds() + PAUSE_SECONDS
