"""Everfill's own queue as a subject: filled, drained by worker processes, watched."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Final

from everfill import __version__
from everfill.bench.queue.load import QUERIES, make_load, read_number
from everfill.bench.queue.plan import Measured, Plan
from everfill.bench.queue.tally import Tally
from everfill.bench.statistics import jain, percentile_ms
from everfill.infra.postgres import Pool, migrate, open_pool
from everfill.kernel import limits
from everfill.kernel.errors import UnavailableError

__all__ = ["measure_everfill"]

_CLAIMS_EACH_MIN: Final = 4  # fewer cannot be shared out evenly
_WATCH_SECONDS: Final = 0.005


async def measure_everfill(url: str, plan: Plan, depth: int, batch: int, workers: int) -> Measured:
    """Fill a fresh database to the depth, drain a part of it, check what landed.

    Raises:
        UnavailableError: A worker did not come to its end.
        AssertionError: A cap was exceeded, or cells that were drained have no value.
    """
    await migrate(url)
    async with open_pool(url, name="everfill-bench") as pool:
        load = await make_load(
            pool, cells=depth, collections=plan.collections, namespaces=plan.namespaces
        )
        before = await read_number(pool, "written")
        watch = asyncio.create_task(_watch_caps(pool))
        tallies = await _drain(url, plan, min(plan.drain, load.cells), batch, workers)
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)
        assert watch.cancelled(), str(watch.exception())
        drained = sum(tally.cells for tally in tallies)
        written = await read_number(pool, "written") - before
        landed = await read_number(pool, "landed")
        warm_up = sum(tally.warm_up_cells for tally in tallies)
        assert landed == drained + warm_up, f"{drained + warm_up} came home, {landed} have a value"
    seconds = max(t.ended_at for t in tallies) - min(t.began_at for t in tallies)
    is_shared = (
        drained + warm_up < load.cells and drained >= _CLAIMS_EACH_MIN * batch * plan.collections
    )
    claims = [seconds for tally in tallies for seconds in tally.claims]
    finalizes = [seconds for tally in tallies for seconds in tally.finalizes]
    return Measured(
        subject="everfill",
        version=__version__,
        depth=load.cells,
        batch=batch,
        workers=workers,
        drained=drained,
        cells_per_second=drained / seconds,
        enqueue_per_second=load.dispatch_cells_per_second,
        claim_p50_ms=percentile_ms(claims, 0.5),
        claim_p99_ms=percentile_ms(claims, 0.99),
        finalize_p50_ms=percentile_ms(finalizes, 0.5),
        finalize_p99_ms=percentile_ms(finalizes, 0.99),
        wal_bytes_per_cell=load.dispatch_wal_bytes + written / drained,
        entry_bytes=load.queue_bytes,
        cpu_us_per_cell=sum(tally.cpu_seconds for tally in tallies) / drained * 1e6,
        fairness_index=_fairness(tallies, plan) if is_shared else None,
    )


async def _drain(url: str, plan: Plan, cells: int, batch: int, processes: int) -> list[Tally]:
    """Let worker processes go at the same moment; returns what each did."""
    share = -(-cells // processes)
    command = [sys.executable, "-m", "everfill.bench.queue.worker", url]
    arguments = [str(share), str(batch), str(plan.payload_bytes)]
    pipe = asyncio.subprocess.PIPE
    workers = [
        await asyncio.create_subprocess_exec(*command, *arguments, stdin=pipe, stdout=pipe)
        for _ in range(processes)
    ]
    try:
        for worker in workers:
            assert worker.stdout
            await worker.stdout.readline()
        outputs = await asyncio.gather(*(worker.communicate(b"go\n") for worker in workers))
    finally:
        for worker in workers:
            if worker.returncode is None:
                worker.kill()
    if any(worker.returncode for worker in workers):
        raise UnavailableError("bench_worker_failed", "A worker of the benchmark failed.")
    return [Tally(**json.loads(output)) for output, _ in outputs]


async def _watch_caps(pool: Pool) -> None:
    """Look at what is in flight, over and over; more than a cap is the end of the benchmark."""
    async with pool.connection() as connection:
        while True:
            cursor = await connection.execute(QUERIES["in_flight"])
            ((of_collection, of_namespace),) = await cursor.fetchall()
            assert of_collection <= limits.COLLECTION_CAP_CELLS, "a collection exceeded its cap"
            assert of_namespace <= limits.NAMESPACE_CAP_CELLS, "a namespace exceeded its cap"
            await asyncio.sleep(_WATCH_SECONDS)


def _fairness(tallies: Sequence[Tally], plan: Plan) -> float:
    """Jain's index over collections, all of which had work to the end."""
    served: Counter[int] = Counter()
    for tally in tallies:
        served.update({int(key): cells for key, cells in tally.served.items()})
    return jain([float(cells) for cells in served.values()], plan.collections)
