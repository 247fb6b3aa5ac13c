"""Measure procrastinate.

Its recommended fast settings.
"""

from __future__ import annotations

import asyncio
import contextlib
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
CONCURRENCY = 10


class ProcrastinateQueue:
    """procrastinate as a subject."""

    name = "procrastinate"
    distribution = "procrastinate"
    latency_of = "one fetch of one job"
    fairness = "none: priority, then first in, first out; locks give one job at a time"
    variants = ("delete", "keep", "checked", "transactions", "asyncio", "silent")

    def settings(self, request: Request) -> Mapping[str, str]:
        """Every setting chosen, and why."""
        return {"concurrency": f"{_concurrency(request)}"}

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


if __name__ == "__main__":
    main(ProcrastinateQueue())
