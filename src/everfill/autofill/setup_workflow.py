"""The setup workflow: exactly one for each active collection, never one for a cell.

It keeps the shared cache warm, drains completions in batches, emits progress frames, rolls up
usage, and ends when the collection is idle. Nothing it does is needed for a cell to be filled:
should it be lost, a frame is lost. Its history is bounded: an activity covers seconds of
completions, and it continues as new long before it is long.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Final

from temporalio import workflow
from temporalio.common import RetryPolicy

with workflow.unsafe.imports_passed_through():
    from everfill.autofill.workflow_names import (
        SETUP_WORKFLOW,
        WORK_SIGNAL,
        ServedCollection,
        SetupStart,
    )

__all__ = ["SetupWorkflow"]

HISTORY_EVENTS_MAX: Final = 2_000
"""Continue as new well under Temporal's 10,000 events."""
GRACE_SECONDS: Final = 2.0
"""An idle collection is looked at once more after this. It is longer than an announcer's turn, so
that whatever a turn kept from being announced is seen by that second look."""
_SHARE_EVERY: Final = timedelta(seconds=60)  # a fifth of the lease of the shared cache
_TIMEOUT: Final = timedelta(seconds=30)
_HEARTBEAT_TIMEOUT: Final = timedelta(seconds=10)
_RETRY: Final = RetryPolicy(
    initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=10)
)


@workflow.defn(name=SETUP_WORKFLOW)
class SetupWorkflow:
    """Serves one collection while it has work."""

    def __init__(self) -> None:
        self._signalled = False

    @workflow.signal(name=WORK_SIGNAL)
    def work(self) -> None:
        """There is work: do not end now."""
        self._signalled = True

    @workflow.run
    async def run(self, start: SetupStart) -> None:
        """Serve the collection until it stays idle.

        A signal that comes before the last command keeps the workflow alive; one that comes later
        starts a new one.
        """
        shared_at = None
        idle_before = False
        while True:
            if shared_at is None or workflow.now() - shared_at >= _SHARE_EVERY:
                await self._activity("share_collection", start.collection_id)
                shared_at = workflow.now()
            self._signalled = False
            served = await self._serve(start)
            start = replace(start, after=served.after)
            if self._is_long():
                workflow.continue_as_new(start)
            is_idle = served.idle and not self._signalled
            if is_idle and idle_before:
                await self._activity("roll_up_usage", start.collection_id)
                if not self._signalled:
                    return
            idle_before = is_idle and not await self._was_signalled_in_grace()

    async def _was_signalled_in_grace(self) -> bool:
        try:
            await workflow.wait_condition(
                lambda: self._signalled, timeout=timedelta(seconds=GRACE_SECONDS)
            )
        except TimeoutError:
            return False
        return True

    def _is_long(self) -> bool:
        info = workflow.info()
        return (
            info.is_continue_as_new_suggested()
            or info.get_current_history_length() >= HISTORY_EVENTS_MAX
        )

    async def _serve(self, start: SetupStart) -> ServedCollection:
        return await workflow.execute_activity(
            "serve_collection",
            start,
            result_type=ServedCollection,
            start_to_close_timeout=_TIMEOUT,
            heartbeat_timeout=_HEARTBEAT_TIMEOUT,
            retry_policy=_RETRY,
        )

    async def _activity(self, name: str, collection_id: int) -> None:
        await workflow.execute_activity(
            name, collection_id, start_to_close_timeout=_TIMEOUT, retry_policy=_RETRY
        )
