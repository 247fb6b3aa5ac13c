"""Measure procrastinate, which fetches and finishes jobs one by one.

There is no batch on the worker's side, so what counts is the price of one fetch: finished jobs
are deleted, and the pool (given to `App.open_async`, as its guide on connections shows) commits
each statement by itself and does not check a connection before every use. Its documents advise
a pool of the concurrency plus one for short jobs. Jobs are enqueued by `batch_defer` of 5,000
(the only size tried). It keeps no results. LISTEN/NOTIFY stays on, as it is by default.
`--batch` is the concurrency of a worker.

Tried on two cores that other programs also used (20,000 deep, 5,000 drained, 2 workers,
the runs from fastest to slowest; less than 20% apart is no difference, and the slow second runs
fell into other programs' time):

| setting | jobs/s |
| --- | --- |
| **delete, concurrency 1** | **1,330 1,330 790 520** |
| delete, concurrency 10 | 1,020 770 520 |
| delete, concurrency 30 | 1,010 950 810 |
| keep finished jobs, concurrency 10 | 870 830 480 |
| connections checked, concurrency 10 | 760 740 720 |
| a transaction a statement, concurrency 10 | 790 780 680 |
| asyncio in place of uvloop, concurrency 10 | 880 880 780 |
| silent (no LISTEN/NOTIFY), concurrency 10 | 970 910 460 |
| delete, concurrency 10, 4 workers | 1,040 1,020 830 |
| delete, concurrency 1, 4 workers | 1,280 |
| delete, concurrency 5, 8 workers | 900 |
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Mapping
from typing import Any

import psycopg
import uvloop
from peer import Enqueued, Meter, Request, main
from procrastinate import App, PsycopgConnector
from procrastinate.jobs import Job
from procrastinate.manager import JobManager
from psycopg_pool import AsyncConnectionPool

TASK = "bench"
ENQUEUE_BATCH = 5_000
CONCURRENCY = 1


class ProcrastinateQueue:
    """procrastinate as a subject."""

    name = "procrastinate"
    distribution = "procrastinate"
    latency_of = "one fetch of one job"
    fairness = "none: priority, then first in, first out; locks give one job at a time"
    variants = ("delete", "keep", "checked", "transactions", "asyncio", "silent")

    def settings(self, request: Request) -> Mapping[str, str]:
        """Every setting chosen, and why."""
        variant = request.variant
        return {
            "concurrency": f"{_concurrency(request)}: the handler waits for nothing",
            "pool": f"{_concurrency(request) + 1} connections: the concurrency plus one",
            "pool_check": "on" if variant == "checked" else "off: a round trip less a statement",
            "autocommit": "off" if variant == "transactions" else "on: two round trips less",
            "delete_jobs": "never" if variant == "keep" else "always: one write less, small table",
            "listen_notify": "off" if variant == "silent" else "on: the default",
            "event_loop": "asyncio" if variant == "asyncio" else "uvloop: faster",
            "fetch": "one job a statement: there is no batch",
            "enqueue": f"batch_defer of {ENQUEUE_BATCH} jobs",
            "results": "none kept: procrastinate drops what a task returns",
        }

    def install(self, request: Request) -> None:
        """Make the schema."""
        asyncio.run(_install(request))

    def enqueue(self, request: Request) -> Enqueued:
        """Make the depth."""
        return asyncio.run(_enqueue(request))

    def work(self, request: Request, meter: Meter) -> None:
        """Run one worker process."""
        run = asyncio.run if request.variant == "asyncio" else uvloop.run
        run(_work(request, meter))

    def count_finished(self, request: Request) -> int:
        """How many jobs the database holds as finished."""
        with psycopg.connect(request.dsn) as connection:
            row = connection.execute(
                "select %s - count(*) from procrastinate_jobs where status <> 'succeeded'",
                (request.depth,),
            ).fetchone()
        assert row is not None
        return int(row[0])


def _concurrency(request: Request) -> int:
    return request.batch or CONCURRENCY


def _app(request: Request) -> App:
    app = App(connector=PsycopgConnector(conninfo=request.dsn, min_size=1, max_size=2))

    @app.task(name=TASK)
    async def handle(payload: str) -> str:
        return payload

    return app


async def _install(request: Request) -> None:
    app = _app(request)
    async with app.open_async():
        await app.schema_manager.apply_schema_async()


async def _enqueue(request: Request) -> Enqueued:
    app = _app(request)
    task = app.tasks[TASK]
    async with app.open_async():
        started = time.perf_counter()
        left = request.depth
        while left:
            jobs = min(ENQUEUE_BATCH, left)
            await task.batch_defer_async(*[{"payload": request.payload()}] * jobs)
            left -= jobs
        return Enqueued(jobs=request.depth, seconds=time.perf_counter() - started)


def _meter(manager: JobManager, meter: Meter) -> None:
    fetch, finish = manager.fetch_job, manager.finish_job

    async def fetch_job(*given: Any, **named: Any) -> Job | None:
        meter.gate()
        started = time.perf_counter()
        job = await fetch(*given, **named)
        if job is not None:
            meter.claimed(started)
        return job

    async def finish_job(*given: Any, **named: Any) -> None:
        await finish(*given, **named)
        meter.finished(1)

    manager.fetch_job = fetch_job
    manager.finish_job = finish_job


async def _commit_each(connection: psycopg.AsyncConnection[Any]) -> None:
    await connection.set_autocommit(True)


async def _work(request: Request, meter: Meter) -> None:
    app = _app(request)
    size = _concurrency(request) + 1
    checked = request.variant == "checked"
    pool = AsyncConnectionPool(
        request.dsn,
        min_size=size,
        max_size=size,
        open=False,
        check=AsyncConnectionPool.check_connection if checked else None,
        configure=_commit_each if request.variant != "transactions" else None,
    )
    await pool.open(wait=True)
    async with app.open_async(pool):
        _meter(app.job_manager, meter)
        worker = asyncio.create_task(
            app.run_worker_async(
                concurrency=_concurrency(request),
                delete_jobs="never" if request.variant == "keep" else "always",
                listen_notify=request.variant != "silent",
                install_signal_handlers=False,
            )
        )
        loop = asyncio.get_running_loop()
        meter.when_over(lambda: loop.call_soon_threadsafe(worker.cancel))
        with contextlib.suppress(asyncio.CancelledError):
            await worker
    await pool.close()


# It warns of an app made in a script's main module; this one has all its tasks beside it.
logging.getLogger("procrastinate").setLevel(logging.ERROR)

if __name__ == "__main__":
    main(ProcrastinateQueue())
