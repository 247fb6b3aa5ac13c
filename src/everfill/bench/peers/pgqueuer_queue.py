"""Measure pgqueuer, whose dequeue and completion are batched.

From its performance guide: bigger dequeue batches for short jobs, one direct asyncpg connection
for a queue manager, `pgq autovac` after the installation, no limit on concurrent tasks; from its
own benchmark: asyncpg and uvloop. Jobs are enqueued by lists of 5,000 (the only size tried). It
keeps no results: a finished job leaves the queue and one row of its log says so.

Tried on two cores that other programs also used (100,000 deep, 50,000 drained, 2 workers,
the runs from fastest to slowest; less than 20% apart is no difference):

| setting | jobs/s |
| --- | --- |
| connection, batch 50 | 10,700 |
| connection, batch 100 | 13,800 12,700 |
| connection, batch 250 | 20,400 17,200 16,100 |
| connection, batch 500 | 20,100 18,900 14,400 |
| **connection, batch 1,000** | **20,900 18,100** |
| pool, batch 250 | 21,000 18,100 |
| pool, batch 500 | 19,500 7,000 |
| psycopg, batch 250 | 14,400 13,200 12,900 |
| asyncio in place of uvloop, batch 250 | 15,700 |
| connection, batch 250, 1 worker | 14,000 |
| connection, batch 250, 4 workers | 20,000 |
| balanced (the log is lost in a crash), batch 250 | 23,100 20,600 17,600 |

A million deep, with the default and 100,000 drained, it gave 10,300 10,300 8,900 8,300; why it is
slower there was not found out. `default-vacuum`, without its autovacuum settings, is there to see
whether a vacuum of the deep table takes the time; it has not been measured.

`balanced` is not the default: what says that a job is done would not outlive a crash, which the
others' figures include.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import asyncpg
import psycopg
import uvloop
from peer import Enqueued, Meter, Request, main
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver, Driver, PsycopgDriver
from pgqueuer.domain.settings import Durability, db_settings
from pgqueuer.models import Job
from pgqueuer.queries import Queries

ENTRYPOINT = "bench"
ENQUEUE_BATCH = 5_000
DEQUEUE_BATCH = 1_000
_DRIVERS = {"pool": "asyncpg pool of 20", "psycopg": "psycopg connection"}


class _MeteredQueries(Queries):
    """The queries of one worker, timed."""

    meter: Meter

    async def dequeue(self, *given: Any, **named: Any) -> list[Job]:
        self.meter.gate()
        started = time.perf_counter()
        jobs = await super().dequeue(*given, **named)
        if jobs:
            self.meter.claimed(started)
        return jobs

    async def log_jobs(self, job_status: list[Any]) -> None:
        await super().log_jobs(job_status)
        self.meter.finished(len(job_status))


class PgqueuerQueue:
    """pgqueuer as a subject."""

    name = "pgqueuer"
    distribution = "pgqueuer"
    latency_of = "one dequeue statement of a batch"
    fairness = "none: priority, then first in, first out"
    variants = ("connection", "pool", "psycopg", "balanced", "asyncio", "default-vacuum")

    def settings(self, request: Request) -> Mapping[str, str]:
        """Every setting chosen, and why."""
        loop = "asyncio" if request.variant == "asyncio" else "uvloop"
        level = "balanced" if request.variant == "balanced" else "durable"
        return {
            "batch_size": f"{_batch(request)}: short jobs, few round trips",
            "max_concurrent_tasks": "none: the handler waits for nothing",
            "driver": _DRIVERS.get(request.variant, "one asyncpg connection: its guide's advice"),
            "event_loop": f"{loop}: its own benchmark runs on uvloop",
            "durability": f"{level}: durable is the default, and compares with the others",
            "autovacuum": "the server's"
            if request.variant == "default-vacuum"
            else "its own settings (pgq autovac)",
            "enqueue": f"lists of {ENQUEUE_BATCH} jobs",
            "results": "none kept: the log holds the status of each job",
        }

    def install(self, request: Request) -> None:
        """Make the schema."""
        uvloop.run(_install(request))

    def enqueue(self, request: Request) -> Enqueued:
        """Make the depth."""
        return uvloop.run(_enqueue(request))

    def work(self, request: Request, meter: Meter) -> None:
        """Run one worker process."""
        run = asyncio.run if request.variant == "asyncio" else uvloop.run
        run(_work(request, meter))

    def count_finished(self, request: Request) -> int:
        """How many jobs the database holds as finished."""
        with psycopg.connect(request.dsn) as connection:
            row = connection.execute(
                "select count(*) from pgqueuer_log where status = 'successful'"
            ).fetchone()
        assert row is not None
        return int(row[0])


def _batch(request: Request) -> int:
    return request.batch or DEQUEUE_BATCH


async def _connect(request: Request) -> asyncpg.Connection:
    given = request.connection()
    given["database"] = given.pop("dbname")
    return await asyncpg.connect(**given)


async def _driver(request: Request) -> Driver:
    if request.variant == "psycopg":
        return PsycopgDriver(await psycopg.AsyncConnection.connect(request.dsn, autocommit=True))
    if request.variant == "pool":
        given = request.connection()
        given["database"] = given.pop("dbname")
        return AsyncpgPoolDriver(await asyncpg.create_pool(**given, min_size=5, max_size=20))
    return AsyncpgDriver(await _connect(request))


async def _install(request: Request) -> None:
    if request.variant == "balanced":
        db_settings().durability = Durability.balanced
    queries = Queries(AsyncpgDriver(await _connect(request)))
    await queries.install()
    if request.variant != "default-vacuum":
        await queries.optimize_autovacuum()


async def _enqueue(request: Request) -> Enqueued:
    queries = Queries(AsyncpgDriver(await _connect(request)))
    payload: bytes | None = request.payload().encode()
    started = time.perf_counter()
    left = request.depth
    while left:
        jobs = min(ENQUEUE_BATCH, left)
        await queries.enqueue([ENTRYPOINT] * jobs, [payload] * jobs, [0] * jobs)
        left -= jobs
    return Enqueued(jobs=request.depth, seconds=time.perf_counter() - started)


async def _work(request: Request, meter: Meter) -> None:
    driver = await _driver(request)
    queries = _MeteredQueries(driver)
    queries.meter = meter
    worker = PgQueuer(driver, queries=queries)

    @worker.entrypoint(ENTRYPOINT)
    async def handle(job: Job) -> None:
        del job

    loop = asyncio.get_running_loop()
    meter.when_over(lambda: loop.call_soon_threadsafe(worker.shutdown.set))
    await worker.run(batch_size=_batch(request))


if __name__ == "__main__":
    main(PgqueuerQueue())
