"""Measure DBOS queues.

Their recommended fast settings.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from typing import Any

import psycopg
import sqlalchemy
from dbos import DBOS, DBOSClient, DBOSConfig
from dbos._sys_db import SystemDatabase
from peer import Enqueued, Meter, Request, main

APPLICATION = "bench"
QUEUE = "bench"
WORKFLOW = "bench"
ENQUEUE_BATCH = 1_000
ENQUEUED_MAX = 10_000
CONCURRENCY = 200
POLLING_SECONDS = 0.05
THREADS = 16
STOP_SECONDS = 10

_COPY = """
    with copies as materialized (
        select workflow_uuid as original, workflow_uuid || '-' || n as workflow_uuid, n
        from dbos.workflow_status cross join generate_series(1, %(times)s) as n
        limit %(jobs)s
    ),
    inputs as (
        insert into dbos.workflow_input (workflow_uuid, inputs)
        select c.workflow_uuid, i.inputs
        from copies as c
        join dbos.workflow_input as i on i.workflow_uuid = c.original
    )
    insert into dbos.workflow_status (
        workflow_uuid, status, name, created_at, updated_at, recovery_attempts, queue_name,
        priority, serialization, attributes, application_name, creator_xid
    )
    select
        c.workflow_uuid, s.status, s.name, s.created_at + n, s.updated_at + n,
        s.recovery_attempts, s.queue_name, s.priority, s.serialization, s.attributes,
        s.application_name, s.creator_xid
    from copies as c
    join dbos.workflow_status as s on s.workflow_uuid = c.original
"""


class DbosQueue:
    """DBOS queues as a subject."""

    name = "dbos"
    distribution = "dbos"
    latency_of = "one claim of a batch"
    fairness = "none in a queue; partitions can be capped, and are polled in random order"
    variants = ("thread", "async")

    def settings(self, request: Request) -> Mapping[str, str]:
        """Every setting chosen, and why."""
        return {"worker_concurrency": f"{_concurrency(request)}"}

    def install(self, request: Request) -> None:
        """Make the schema."""
        _launch(request)
        DBOS.register_queue(
            QUEUE,
            worker_concurrency=_concurrency(request),
            polling_interval_sec=POLLING_SECONDS,
        )
        DBOS.destroy()

    def enqueue(self, request: Request) -> Enqueued:
        """Make the depth."""
        url = request.url("postgresql+psycopg")
        client = DBOSClient(system_database_url=url, application_name=APPLICATION)
        engine = sqlalchemy.create_engine(url)
        jobs = min(request.depth, ENQUEUED_MAX)
        started = time.perf_counter()
        for first in range(0, jobs, ENQUEUE_BATCH):
            with engine.begin() as connection:
                for _ in range(min(ENQUEUE_BATCH, jobs - first)):
                    client.enqueue_in_transaction(
                        connection,
                        {"workflow_name": WORKFLOW, "queue_name": QUEUE},
                        request.payload(),
                    )
        seconds = time.perf_counter() - started
        client.destroy()
        engine.dispose()
        with psycopg.connect(request.dsn) as connection:
            left = request.depth - jobs
            connection.execute(_COPY, {"jobs": left, "times": -(-left // jobs)})
        return Enqueued(jobs=jobs, seconds=seconds)

    def work(self, request: Request, meter: Meter) -> None:
        """Run one worker process."""
        _define(request)
        _meter(meter)
        _launch(request)
        meter.wait()
        DBOS.destroy(workflow_completion_timeout_sec=STOP_SECONDS)

    def count_finished(self, request: Request) -> int:
        """How many jobs the database holds as finished."""
        with psycopg.connect(request.dsn) as connection:
            row = connection.execute(
                "select count(*) from dbos.workflow_status where status = 'SUCCESS'"
            ).fetchone()
        assert row is not None
        return int(row[0])


def _concurrency(request: Request) -> int:
    return request.batch or CONCURRENCY


def _define(request: Request) -> None:
    if request.variant == "async":

        @DBOS.workflow(name=WORKFLOW)
        async def handle_soon(payload: str) -> str:
            return payload

    else:

        @DBOS.workflow(name=WORKFLOW)
        def handle(payload: str) -> str:
            return payload


def _launch(request: Request) -> None:
    config: DBOSConfig = {
        "name": APPLICATION,
        "application_version": "1",
        "executor_id": str(uuid.uuid4()),
        "system_database_url": request.url("postgresql+psycopg"),
        "sys_db_pool_size": THREADS + 4,
        "max_executor_threads": THREADS,
        "log_level": "ERROR",
    }
    DBOS(config=config)
    DBOS.launch()


def _meter(meter: Meter) -> None:
    claim, settle = SystemDatabase.start_queued_workflows, SystemDatabase.update_workflow_outcome

    def start_queued_workflows(self: SystemDatabase, queue: Any, *given: Any, **named: Any) -> Any:
        if queue.name != QUEUE:
            return claim(self, queue, *given, **named)
        meter.gate()
        started = time.perf_counter()
        answer = claim(self, queue, *given, **named)
        if answer[0]:
            meter.claimed(started)
        return answer

    def update_workflow_outcome(
        self: SystemDatabase, workflow_id: str, status: Any, **named: Any
    ) -> bool:
        landed = settle(self, workflow_id, status, **named)
        if landed and status == "SUCCESS":
            meter.finished(1)
        return landed

    SystemDatabase.start_queued_workflows = start_queued_workflows
    SystemDatabase.update_workflow_outcome = update_workflow_outcome


if __name__ == "__main__":
    main(DbosQueue())
