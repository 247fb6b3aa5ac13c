"""Measure DBOS queues, which claim in batches and finish workflows one by one.

A queue is drained by polling, so a short interval and room for many workflows in each process
decide. There is no documented bulk enqueue: up to 10,000 jobs are enqueued and timed by
`DBOSClient.enqueue_in_transaction`, 1,000 a transaction, and the rest of the depth is copied
from those in SQL, untimed, because a million would take a quarter of an hour. DBOS keeps the
result of every workflow, so the handler returns the payload. `--batch` is `worker_concurrency`.
The claims and the outcomes are timed by wrapping two methods of its system database, which has
no public hook.

Tried on two cores that other programs also used (20,000 deep, 4,000 to 5,000 drained, 2 workers,
the runs from fastest to slowest; less than 20% apart is no difference):

| setting | jobs/s |
| --- | --- |
| **eager: polling 0.01 s, connections not checked, concurrency 200** | **1,930** |
| the same, concurrency 50 | 1,020 |
| unchecked: polling 0.05 s, connections not checked, concurrency 200 | 1,680 |
| checked: polling 0.05 s, connections checked, concurrency 200 | 1,680 1,560 1,440 1,190 |
| the same, concurrency 50 | 1,060 1,050 |
| the same, concurrency 1,000 | 1,430 1,210 1,190 |
| the same, concurrency 200, 1 worker | 1,170 1,120 |
| the same, concurrency 200, 4 workers | 1,490 1,380 |
| async: the same with a coroutine as workflow | 1,170 1,110 1,030 |
| upstream: as in its makers' benchmark (below), one run | 740 |

`upstream` is what their own benchmark of queues takes by default: 1,000 workflows and 512
threads a process, 5 connections, polling every second, a coroutine as workflow.
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

# One row for each copy, under names made from the originals', its input beside it.
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
    variants = ("eager", "unchecked", "checked", "async", "upstream")

    def settings(self, request: Request) -> Mapping[str, str]:
        """Every setting chosen, and why."""
        upstream = request.variant == "upstream"
        return {
            "worker_concurrency": f"{_concurrency(request)}: room for a batch in each process",
            "polling_interval_sec": f"{_polling_seconds(request)}: the queue is found by polling",
            "max_executor_threads": f"{512 if upstream else THREADS}: enough for the pool",
            "sys_db_pool_size": f"{5 if upstream else THREADS + 4}: a connection a thread",
            "pool_pre_ping": "off: a round trip less" if not _is_checked(request) else "on",
            "workflow": "coroutine" if _is_coroutine(request) else "function: faster, no steps",
            "enqueue": f"enqueue_in_transaction, {ENQUEUE_BATCH} a transaction, at most "
            f"{ENQUEUED_MAX} timed; the rest copied in SQL (its WAL is counted)",
            "results": "kept by DBOS: the payload",
        }

    def install(self, request: Request) -> None:
        """Make the schema."""
        _launch(request)
        DBOS.register_queue(
            QUEUE,
            worker_concurrency=_concurrency(request),
            polling_interval_sec=_polling_seconds(request),
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
    return request.batch or (1_000 if request.variant == "upstream" else CONCURRENCY)


def _is_coroutine(request: Request) -> bool:
    return request.variant in {"async", "upstream"}


def _is_checked(request: Request) -> bool:
    return request.variant in {"checked", "async", "upstream"}


def _polling_seconds(request: Request) -> float:
    return {"upstream": 1.0, "eager": 0.01}.get(request.variant, POLLING_SECONDS)


def _define(request: Request) -> None:
    if _is_coroutine(request):

        @DBOS.workflow(name=WORKFLOW)
        async def handle_soon(payload: str) -> str:
            return payload

    else:

        @DBOS.workflow(name=WORKFLOW)
        def handle(payload: str) -> str:
            return payload


def _launch(request: Request) -> None:
    upstream = request.variant == "upstream"
    config: DBOSConfig = {
        "name": APPLICATION,
        "application_version": "1",
        "executor_id": str(uuid.uuid4()),
        "system_database_url": request.url("postgresql+psycopg"),
        "sys_db_pool_size": 5 if upstream else THREADS + 4,
        "max_executor_threads": 512 if upstream else THREADS,
        "db_engine_kwargs": {"pool_pre_ping": _is_checked(request)},
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
