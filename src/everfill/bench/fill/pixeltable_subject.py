"""Pixeltable as a subject: its script, run by its own Python."""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any, Final

from everfill.bench.fill.plan import Measured, Work
from everfill.kernel.errors import UnavailableError

__all__ = ["measure_pixeltable"]

_SCRIPT: Final = Path(__file__).parent.parent / "peers" / "pixeltable_fill.py"
_PATIENCE_SECONDS: Final = 1_800.0
_EDIT_PATIENCE_SECONDS: Final = 120
_STOP_SECONDS: Final = 30.0
_WORDS_MAX: Final = 400
_CHUNKS: Final = 10  # what is done is seen, and kept, sooner: its best for slow calls


async def measure_pixeltable(
    python: Path, work: Work, *, slots: int, provider_url: str | None
) -> Measured:
    """The same work in a home of its own.

    Raises:
        UnavailableError: `bench_peer_failed`, with its last words.
    """
    found = await _run(python, work, slots, provider_url)
    edits: dict[str, Any] = found.get("edits_while_importing") or {}
    filled: dict[str, Any] = found.get("import") or found
    peak: dict[str, float] | None = found.get("peak_resident_mib")
    cpu_seconds: float | None = filled.get("cpu_seconds_per_1000_cells")
    return Measured(
        subject="pixeltable",
        version=found["version"],
        work=work.name,
        cells=work.cells,
        seconds=filled.get("seconds"),
        cells_per_second=filled.get("cells_per_second"),
        cpu_us_per_cell=None if cpu_seconds is None else cpu_seconds * 1_000,
        peak_resident_mib=peak["together"] if peak else None,
        first_cell_seconds=found.get("first_visible_cell_seconds"),
        edit_p50_ms=edits.get("p50_ms"),
        edit_p99_ms=edits.get("worst_ms"),
        spent_passes=found.get("spend_passes"),
        lost_cells=found.get("cells_lost"),
    )


async def _run(python: Path, work: Work, slots: int, provider_url: str | None) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="everfill-bench-") as folder:
        process = await asyncio.create_subprocess_exec(
            *(str(python), str(_SCRIPT), _mode(work)),
            *("--folder", f"{folder}/home", "--rows", str(work.rows)),
            *(("--provider-url", f"{provider_url}/fill") if provider_url else ()),
            *(("--chunk-rows", str(work.rows // _CHUNKS)) if provider_url else ()),
            *("--connections", str(slots), "--edit-timeout-seconds", str(_EDIT_PATIENCE_SECONDS)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                output, words = await process.communicate()
        finally:
            await _end(process)
    if process.returncode:
        told = words.decode(errors="replace").strip()[-_WORDS_MAX:]
        raise UnavailableError("bench_peer_failed", f"pixeltable failed: {told}")
    return json.loads(output.splitlines()[-1])


async def _end(process: asyncio.subprocess.Process) -> None:
    """End the script where it still runs; it ends its own processes, Postgres among them."""
    if process.returncode is not None:
        return
    process.terminate()
    try:
        await asyncio.wait_for(process.wait(), _STOP_SECONDS)
    except TimeoutError:
        process.kill()


def _mode(work: Work) -> str:
    if work.kill:
        return "crash"
    if work.edits:
        return "edit"
    return "batch" if work.latency_ms is None else "provider"
