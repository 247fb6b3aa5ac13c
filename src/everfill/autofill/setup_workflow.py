"""The setup workflow: exactly one for each active collection, never one for a cell.

It keeps the shared cache warm, drains completions in batches, emits progress frames, rolls up
usage, and ends when the collection is idle. Nothing it does is needed for a cell to be filled:
should it be lost, a frame is lost. Its history is bounded: an activity covers seconds of
completions, and it continues as new long before it is long.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from temporalio import workflow
from temporalio.common import RetryPolicy

with workflow.unsafe.imports_passed_through():
    from everfill.autofill.workflow_names import SETUP_WORKFLOW, WORK_SIGNAL

__all__ = ["SetupWorkflow"]

HISTORY_EVENTS_MAX: Final = 2_000
"""Continue as new well under Temporal's 10,000 events."""
_SHARE_EVERY_LOOPS: Final = 40
_IDLE_LOOPS: Final = 3
"""Loops in a row that find the collection idle before the workflow ends."""
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
    async def run(self, collection_id: int, after: str = "0") -> None:
        """Serve the collection.

        Args:
            collection_id: Which one.
            after: The last completion that was drained, when this run continues another.
        """
        idle = loops = 0
        while idle < _IDLE_LOOPS:
            if loops % _SHARE_EVERY_LOOPS == 0:
                await self._activity("share_collection", collection_id)
            loops += 1
            self._signalled = False
            after, is_idle = await workflow.execute_activity(
                "serve_collection",
                args=[collection_id, after],
                result_type=tuple[str, bool],
                start_to_close_timeout=_TIMEOUT,
                heartbeat_timeout=_HEARTBEAT_TIMEOUT,
                retry_policy=_RETRY,
            )
            idle = idle + 1 if is_idle and not self._signalled else 0
            if self._is_long():
                workflow.continue_as_new(args=[collection_id, after])
        await self._activity("roll_up_usage", collection_id)

    def _is_long(self) -> bool:
        info = workflow.info()
        return (
            info.is_continue_as_new_suggested()
            or info.get_current_history_length() >= HISTORY_EVENTS_MAX
        )

    async def _activity(self, name: str, collection_id: int) -> None:
        await workflow.execute_activity(
            name, collection_id, start_to_close_timeout=_TIMEOUT, retry_policy=_RETRY
        )
