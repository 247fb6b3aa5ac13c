"""The janitor's clock: one workflow in the installation, one activity a tick."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from temporalio import workflow
from temporalio.common import RetryPolicy

with workflow.unsafe.imports_passed_through():
    from everfill.autofill.workflow_names import JANITOR_WORKFLOW

__all__ = ["JanitorWorkflow"]

_TICKS_A_RUN: Final = 400  # about five events a tick: continue as new near 2,000
_TIMEOUT: Final = timedelta(minutes=10)
_HEARTBEAT_TIMEOUT: Final = timedelta(seconds=10)
"""A tick whose worker was killed is run by another after this, not after the whole timeout."""
_RETRY: Final = RetryPolicy(
    initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=30)
)


@workflow.defn(name=JANITOR_WORKFLOW)
class JanitorWorkflow:
    """Ticks for ever."""

    def __init__(self) -> None:
        self._report: dict[str, Any] = {}

    @workflow.query
    def last_report(self) -> dict[str, Any]:
        """What the last tick healed."""
        return self._report

    @workflow.run
    async def run(self, tick_seconds: float) -> None:
        """Heal, wait, again."""
        for _ in range(_TICKS_A_RUN):
            self._report = await workflow.execute_activity(
                "heal",
                start_to_close_timeout=_TIMEOUT,
                heartbeat_timeout=_HEARTBEAT_TIMEOUT,
                retry_policy=_RETRY,
                result_type=dict,
            )
            await workflow.sleep(timedelta(seconds=tick_seconds))
        workflow.continue_as_new(tick_seconds)
