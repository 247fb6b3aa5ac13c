"""Another Postgres queue as a subject: its script, run by its own Python."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from everfill.bench.queue.plan import Measured, Plan
from everfill.kernel.errors import UnavailableError

__all__ = ["measure_peer"]

_SCRIPTS: Final = Path(__file__).parent.parent / "peers"
_SETUP_SECONDS_MAX: Final = 600  # a million jobs are enqueued first
_WORDS_MAX: Final = 400


async def measure_peer(url: str, plan: Plan, name: str, depth: int, workers: int) -> Measured:
    """Measure one of the others in a fresh database, at the batch its script found fastest.

    Raises:
        UnavailableError: `bench_peer_failed`, with its last words.
    """
    report = await _run(name, url, plan, depth, workers)
    cpu = report["cpu_seconds_per_1000_jobs"]
    latency: Mapping[str, float | None] = report["latency_ms"]
    return Measured(
        subject=name,
        version=report["version"],
        depth=depth,
        batch=None,
        workers=workers,
        drained=report["drained"],
        cells_per_second=report["drain_per_second"],
        enqueue_per_second=report["enqueue_per_second"],
        claim_p50_ms=latency["p50"],
        claim_p99_ms=latency["p99"],
        finalize_p50_ms=None,
        finalize_p99_ms=None,
        wal_bytes_per_cell=report["wal_bytes_per_job"],
        entry_bytes=None,
        cpu_us_per_cell=None if cpu is None else cpu * 1_000,
        fairness_index=None,
    )


async def _run(name: str, url: str, plan: Plan, depth: int, workers: int) -> dict[str, Any]:
    process = await asyncio.create_subprocess_exec(
        str(plan.peers_python),
        str(_SCRIPTS / f"{name}_queue.py"),
        *("--dsn", url, "--depth", str(depth), "--drain", str(min(plan.drain, depth))),
        *("--workers", str(workers), "--batch", "0"),
        *("--payload-bytes", str(plan.payload_bytes), "--seconds-max", str(plan.seconds_max)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(_SETUP_SECONDS_MAX + plan.seconds_max):
            output, words = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    if process.returncode:
        told = words.decode(errors="replace").strip()[-_WORDS_MAX:]
        raise UnavailableError("bench_peer_failed", f"{name} failed: {told}")
    return json.loads(output)
