"""Histories of workflows that are over: the embedded Temporal need not keep them.

What happened to cells is in Postgres. An outside Temporal keeps its histories for as long as its
namespace says.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest
from temporalio.client import Client

from everfill.autofill.workflow_names import JANITOR_WORKFLOW, SETUP_WORKFLOW

__all__ = ["forget_histories"]

_PAGE: Final = 200
_TIMEOUT: Final = timedelta(seconds=10)  # of one request: a silent server holds nobody up


async def forget_histories(client: Client, *, older_than: timedelta) -> int:
    """Delete up to a page of our workflows' histories that ended so long ago; returns how many.

    Raises:
        RPCError: Temporal does not answer.
    """
    before = (datetime.now(UTC) - older_than).isoformat()
    query = (
        f'WorkflowType IN ("{SETUP_WORKFLOW}", "{JANITOR_WORKFLOW}")'
        f' AND ExecutionStatus != "Running" AND CloseTime < "{before}"'
    )
    forgotten = 0
    async for found in client.list_workflows(query, limit=_PAGE, rpc_timeout=_TIMEOUT):
        execution = WorkflowExecution(workflow_id=found.id, run_id=found.run_id)
        request = DeleteWorkflowExecutionRequest(
            namespace=client.namespace, workflow_execution=execution
        )
        await client.workflow_service.delete_workflow_execution(request, timeout=_TIMEOUT)
        forgotten += 1
    return forgotten
