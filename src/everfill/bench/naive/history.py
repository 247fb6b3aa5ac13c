"""What the server says of a workflow: why it does not go on, and how long its histories are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType, WorkflowTaskFailedCause
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryReverseRequest
from temporalio.client import Client

__all__ = ["Health", "Histories", "last_failure", "look", "read_histories"]

_EVENTS_LOOKED_AT: Final = 50
"""A task that fails again and again adds no events: its first failure is among the last ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """Whether a workflow goes on.

    Attributes:
        task_tries: Of the workflow task that is pending; 0 where none is.
        events: In its history so far.
        is_closed: Whether it ended, in whichever way.
    """

    task_tries: int
    events: int
    is_closed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Histories:
    """All runs of one workflow together.

    Attributes:
        runs: Histories, each continued from the one before.
        events: Their length.
        bytes: Their size, as the server counts it.
        failed_tasks: How many workflow tasks failed or timed out, by the server's words for it.
    """

    runs: int = 0
    events: int = 0
    bytes: int = 0
    failed_tasks: Mapping[str, int] = field(default_factory=dict[str, int])


async def look(client: Client, workflow_id: str) -> Health:
    """How the newest run of a workflow is."""
    described = await client.get_workflow_handle(workflow_id).describe()
    return Health(
        task_tries=described.raw_description.pending_workflow_task.attempt,
        events=described.history_length,
        is_closed=described.close_time is not None,
    )


async def last_failure(client: Client, workflow_id: str) -> str:
    """Why the last workflow task failed, as the history has it."""
    request = GetWorkflowExecutionHistoryReverseRequest(
        namespace=client.namespace,
        execution=WorkflowExecution(workflow_id=workflow_id),
        maximum_page_size=_EVENTS_LOOKED_AT,
    )
    answer = await client.workflow_service.get_workflow_execution_history_reverse(request)
    words = (_words(event) for event in answer.history.events)
    return next((found for found in words if found), "a workflow task fails, without a word why")


async def read_histories(client: Client, workflow_id: str, first_run_id: str) -> Histories:
    """Read every run of a workflow that has ended, following each to its successor."""
    runs, events, size_bytes = 0, 0, 0
    failures: Counter[str] = Counter()
    run_id = first_run_id
    while run_id:
        handle = client.get_workflow_handle(workflow_id, run_id=run_id)
        described = await handle.describe()
        runs += 1
        size_bytes += described.raw_description.workflow_execution_info.history_size_bytes
        async for event in handle.fetch_history_events():
            events += 1
            if words := _words(event):
                failures[words] += 1
            continued = event.workflow_execution_continued_as_new_event_attributes
            run_id = continued.new_execution_run_id  # of the last event: empty of all others
    return Histories(runs=runs, events=events, bytes=size_bytes, failed_tasks=dict(failures))


def _words(event: HistoryEvent) -> str | None:
    """Why a workflow task failed; None of any other event."""
    if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT:
        return "WORKFLOW_TASK_TIMED_OUT"
    if event.event_type != EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED:
        return None
    failed = event.workflow_task_failed_event_attributes
    cause = WorkflowTaskFailedCause.Name(failed.cause)
    parts = (cause.removeprefix("WORKFLOW_TASK_FAILED_CAUSE_"), failed.failure.message)
    return ": ".join(part for part in parts if part)
