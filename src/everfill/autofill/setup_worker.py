"""The setup worker: the process that runs the setup workflows and the janitor."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import Final

import structlog
from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.service import RPCError
from temporalio.worker import Worker

from everfill.autofill.activities import Activities
from everfill.autofill.histories import forget_histories
from everfill.autofill.janitor_workflow import JanitorWorkflow
from everfill.autofill.setup_workflow import SetupWorkflow
from everfill.autofill.workflow_names import JANITOR_ID, JANITOR_WORKFLOW, JanitorStart
from everfill.infra.temporal import connect_temporal
from everfill.kernel.config import Settings
from everfill.kernel.errors import UnavailableError

__all__ = ["SetupWorker"]

_ENSURE_SECONDS: Final = 10.0  # a deleted Temporal database is without a janitor for at most this
_HISTORIES_KEPT: Final = timedelta(minutes=10)  # long enough to look at what went wrong
_SHUTDOWN_SECONDS: Final = 8.0  # Temporal's core has been seen never to finish its own
_RECONNECT_SECONDS: Final = 1.0
_LOG: Final = structlog.stdlib.get_logger()


class SetupWorker:
    """Serves the workflows until it is told to stop, through restarts of Temporal."""

    def __init__(self, settings: Settings, address: str, activities: Activities) -> None:
        self._settings = settings
        self._address = address
        self._activities = activities

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set, and a bounded time more: a client that does not end is left.

        Nothing is lost by it: another worker's activities and workflows go on from their histories.
        """
        serving = asyncio.create_task(self._serve_until(stop))
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait([serving, stopping], return_when=asyncio.FIRST_COMPLETED)
            done, _ = await asyncio.wait([serving], timeout=_SHUTDOWN_SECONDS)
        finally:
            stopping.cancel()
            serving.cancel()
        if done:
            serving.result()
        else:
            _LOG.warning("setup_worker.shutdown_abandoned", seconds=_SHUTDOWN_SECONDS)
            await asyncio.wait([serving], timeout=_RECONNECT_SECONDS)

    async def _serve_until(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            try:
                client = await connect_temporal(self._settings.temporal, self._address)
                await self._serve(client, stop)
            except (UnavailableError, RPCError, RuntimeError) as error:
                _LOG.warning("setup_worker.reconnecting", error=str(error))
                await _wait(stop, _RECONNECT_SECONDS)

    async def _serve(self, client: Client, stop: asyncio.Event) -> None:
        worker = Worker(
            client,
            task_queue=self._settings.temporal.task_queue,
            workflows=[SetupWorkflow, JanitorWorkflow],
            activities=[
                self._activities.share_collection,
                self._activities.serve_collection,
                self._activities.roll_up_usage,
                self._activities.heal,
            ],
        )
        async with worker:
            _LOG.info("setup_worker.started", address=self._address)
            policy = WorkflowIDConflictPolicy.TERMINATE_EXISTING
            while not stop.is_set():
                await self._ensure_janitor(client, policy)
                policy = WorkflowIDConflictPolicy.USE_EXISTING
                if self._settings.temporal.address is None:
                    await _forget_histories(client)
                await _wait(stop, _ENSURE_SECONDS)

    async def _ensure_janitor(self, client: Client, policy: WorkflowIDConflictPolicy) -> None:
        """See to it that the janitor runs.

        A worker that starts replaces it: nothing is lost, and code that is newer than the history
        of the old one cannot be stuck on it.
        """
        try:
            await client.start_workflow(
                JANITOR_WORKFLOW,
                JanitorStart(),
                id=JANITOR_ID,
                task_queue=self._settings.temporal.task_queue,
                id_conflict_policy=policy,
                rpc_timeout=timedelta(seconds=_ENSURE_SECONDS),
            )
        except RPCError as error:  # Temporal restarts; the next round makes up for it
            _LOG.info("setup_worker.janitor_not_ensured", error=str(error))


async def _forget_histories(client: Client) -> None:
    try:
        await forget_histories(client, older_than=_HISTORIES_KEPT)
    except RPCError as error:  # the next round makes up for it
        _LOG.info("setup_worker.histories_kept", error=str(error))


async def _wait(stop: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), seconds)
