"""The janitor's clock: one workflow in the installation, one activity a tick."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Final

from temporalio import workflow
from temporalio.common import RetryPolicy

with workflow.unsafe.imports_passed_through():
    from everfill.autofill.workflow_names import JANITOR_WORKFLOW, JanitorStart, Ticked

__all__ = ["JanitorWorkflow"]

TICKS_A_RUN: Final = 200
"""Some eleven events a tick: continue as new near 2,000."""
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
        self._report: dict[str, int | list[str]] = {}

    @workflow.query
    def last_report(self) -> dict[str, int | list[str]]:
        """What the last tick healed; empty before the first one."""
        return self._report

    @workflow.run
    async def run(self, start: JanitorStart) -> None:
        """Heal, wait, again."""
        self._report = start.report
        for _ in range(TICKS_A_RUN):
            ticked = await workflow.execute_activity(
                "heal",
                result_type=Ticked,
                start_to_close_timeout=_TIMEOUT,
                heartbeat_timeout=_HEARTBEAT_TIMEOUT,
                retry_policy=_RETRY,
            )
            self._report = ticked.report
            await workflow.sleep(timedelta(seconds=ticked.next_in_seconds))
        workflow.continue_as_new(replace(start, report=self._report))
