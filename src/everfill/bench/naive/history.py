"""What the server says of a workflow: why it does not go on, and how long its histories are."""

from __future__ import annotations

from dataclasses import dataclass

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType, WorkflowTaskFailedCause
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryReverseRequest
from temporalio.client import Client, WorkflowHandle, WorkflowHistoryEventFilterType

__all__ = ["Histories", "count_task_tries", "failed_task_words", "measure_histories"]

_EVENTS_LOOKED_AT = 50
"""A task that fails again and again adds no events: its first failure is among the last ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Histories:
    """All runs of one workflow together."""

    runs: int = 0
    events: int = 0
    bytes: int = 0


async def count_task_tries(client: Client, workflow_id: str) -> int:
    """How often the workflow task that is pending now was tried; 0 where none is."""
    described = await client.get_workflow_handle(workflow_id).describe()
    return described.raw_description.pending_workflow_task.attempt


async def failed_task_words(client: Client, workflow_id: str) -> str:
    """Why the last workflow task failed, as the history has it."""
    request = GetWorkflowExecutionHistoryReverseRequest(
        namespace=client.namespace,
        execution=WorkflowExecution(workflow_id=workflow_id),
        maximum_page_size=_EVENTS_LOOKED_AT,
    )
    answer = await client.workflow_service.get_workflow_execution_history_reverse(request)
    words = (_words(event) for event in answer.history.events)
    return next((found for found in words if found), "a workflow task fails, without a word why")


async def measure_histories(client: Client, first: WorkflowHandle[object, object]) -> Histories:
    """Count the events and bytes of a workflow's runs, following each to its successor."""
    runs, events, size_bytes = 0, 0, 0
    run_id = first.first_execution_run_id
    while run_id:
        handle = client.get_workflow_handle(first.id, run_id=run_id)
        described = await handle.describe()
        runs += 1
        events += described.history_length
        size_bytes += described.raw_description.workflow_execution_info.history_size_bytes
        run_id = await _successor(handle)
    return Histories(runs=runs, events=events, bytes=size_bytes)


async def _successor(handle: WorkflowHandle[object, object]) -> str:
    """The run that a run was continued as; empty where it was not."""
    async for event in handle.fetch_history_events(
        event_filter_type=WorkflowHistoryEventFilterType.CLOSE_EVENT
    ):
        continued = event.workflow_execution_continued_as_new_event_attributes
        return continued.new_execution_run_id
    return ""


def _words(event: HistoryEvent) -> str | None:
    """Why a workflow task failed; None of any other event."""
    if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT:
        return "WORKFLOW_TASK_TIMED_OUT"
    if event.event_type != EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED:
        return None
    failed = event.workflow_task_failed_event_attributes
    cause = WorkflowTaskFailedCause.Name(failed.cause)
    return f"{cause.removeprefix('WORKFLOW_TASK_FAILED_CAUSE_')}: {failed.failure.message}"
