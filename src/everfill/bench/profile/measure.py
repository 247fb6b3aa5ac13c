"""A cell's life by hand: every layer's own code, one after the other in one process, each timed.

Nothing overlaps, so the layers add up. Processor time of this process is counted beside the clock;
the rest of a layer is the server's, or waiting for it.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from everfill.app import App, open_app
from everfill.autofill.cell_worker import INSTANT_CLAIM_CELLS
from everfill.autofill.dispatch import Dispatcher, Request
from everfill.autofill.filler import Filler
from everfill.autofill.finalizer import Result
from everfill.autofill.immediate import Answer, Immediate, New
from everfill.autofill.inputs import Plan
from everfill.autofill.queue import Capacity, ClaimedCell, Queue
from everfill.bench.charts import draw_bars
from everfill.bench.fill.everfill_subject import measure_everfill
from everfill.bench.fill.plan import Work
from everfill.bench.record import Goal, Record, Scalar, measure_noise
from everfill.bench.scratch import scratch_settings
from everfill.bench.words import make_words, recompute_by_command
from everfill.compute.protocol import ComputeContext
from everfill.infra.postgres import Connection
from everfill.kernel.ids import CellKey, CollectionId
from everfill.tables.cells import Cells
from everfill.tables.definitions import Definitions

__all__ = ["measure", "plot"]

_LEASE_SECONDS: Final = 60.0
_PATHS: Final = {
    "new rows": ("import", "fill at once", "compute at once", "export"),
    "recompute": (
        "dispatch",
        "claim",
        "read and compute",
        "finalize",
        "release of dependents",
        "completion",
    ),
}
"""The two ways that a cell gets its value, by layer."""
_COMPUTING: Final = ("compute at once", "read and compute", "completion")
_TIMES_MAX: Final = 2.0
_PAGE_ROWS: Final = 1_000
_GOAL_ROWS_MIN: Final = 50_000


def _zeros() -> defaultdict[str, float]:
    return defaultdict(float)


@dataclass(slots=True)
class _Layers:
    """Time by layer; a layer inside another is taken off it."""

    seconds: defaultdict[str, float] = field(default_factory=_zeros)
    cpu_seconds: defaultdict[str, float] = field(default_factory=_zeros)
    calls: defaultdict[str, float] = field(default_factory=_zeros)
    _outer: list[str] = field(default_factory=list[str])

    @contextmanager
    def timed(self, layer: str) -> Generator[None, None, None]:
        """Count what happens meanwhile to a layer."""
        self._outer.append(layer)
        began, cpu_began = time.perf_counter(), time.process_time()
        try:
            yield
        finally:
            passed, cpu_passed = time.perf_counter() - began, time.process_time() - cpu_began
            self._outer.pop()
            self.calls[layer] += 1
            self.seconds[layer] += passed
            self.cpu_seconds[layer] += cpu_passed
            if self._outer:
                self.seconds[self._outer[-1]] -= passed
                self.cpu_seconds[self._outer[-1]] -= cpu_passed


class _TimedQueue(Queue):
    """The queue, with the release inside a finalize told apart."""

    layers: _Layers

    async def _release(
        self,
        connection: Connection,
        collection_id: CollectionId,
        cells: Sequence[CellKey],
        settled: Sequence[CellKey] = (),
    ) -> int:
        with self.layers.timed("release of dependents"):
            return await super()._release(connection, collection_id, cells, settled)


class _TimedImmediate(Immediate):
    """Immediate fill, with the computing told apart from its statements."""

    layers: _Layers

    async def _compute(self, plan: Plan, new: New) -> list[Answer]:
        with self.layers.timed("compute at once"):
            return await super()._compute(plan, new)


async def measure(rows: int, tell: Callable[[str], None]) -> Record:
    """Fill two chained templates by hand, then recompute them, then both with the command."""
    noise = measure_noise()
    layers = _Layers()
    cells = 2 * rows
    with scratch_settings() as settings:
        async with open_app(settings, name="everfill-bench") as app:
            tell(f"by hand: {rows:,} rows, two templates, filled at once")
            collection_id = await make_words(app, rows, lambda: layers.timed("import"))
            await _fill_at_once(app, collection_id, layers)
            await _read_all(app, collection_id, layers)
            tell("by hand: the same recomputed through the queue")
            await _recompute(app, collection_id, layers)
            tell("recomputed by the command")
            recomputed_seconds = await recompute_by_command(app)
    tell("filled by the command")
    filled = await measure_everfill(
        Work(name="two templates", rows=rows), slots=20, provider_url=None
    )
    assert filled.seconds, "a fill by the command has a time"
    return Record(
        benchmark="profile",
        settings={"rows": rows, "columns": 2},
        results=[
            _line(layers, path, layer, cells) for path, names in _PATHS.items() for layer in names
        ],
        goals=[
            _goal("a whole fill", filled.seconds, layers, _PATHS["new rows"]),
            _goal("a whole recompute", recomputed_seconds, layers, _PATHS["recompute"]),
        ]
        if rows >= _GOAL_ROWS_MIN
        else [],
        notes=[
            f"Statements are all layers but: {', '.join(_COMPUTING)}. Nothing overlaps by hand.",
            "Both commands start as well. The export by hand reads every cell and writes no file.",
            f"Goals are for {_GOAL_ROWS_MIN:,} rows and more: of fewer, the start is most of it.",
        ],
        noise=noise,
    )


def plot(record: Record, path: Path) -> None:
    """Draw the microseconds of a cell, a bar a layer."""
    bars = {
        f"{line['path']}: {line['layer']}": float(str(line["us_per_cell"]))
        for line in record.results
    }
    draw_bars(path, bars, title="A cell's life", x_label="microseconds a cell")


def _goal(what: str, seconds: float, layers: _Layers, names: Sequence[str]) -> Goal:
    ceiling = sum(layers.seconds[name] for name in names if name not in _COMPUTING)
    times = seconds / ceiling
    return Goal(
        promise=f"{what} within {_TIMES_MAX:.0f} times its statements by hand",
        measured=f"{times:.2f} times ({seconds:.1f} s and {ceiling:.1f} s)",
        met=times <= _TIMES_MAX,
    )


async def _fill_at_once(app: App, collection_id: CollectionId, layers: _Layers) -> None:
    immediate = _TimedImmediate(blobs=app.blobs, context=_context(app), sink=app.bus)
    immediate.layers = layers
    dispatcher = Dispatcher(app.pool, app.queue, app.blobs, app.announcer, immediate)
    with layers.timed("fill at once"):
        await dispatcher.dispatch(Request(collection_id=collection_id))
    assert await app.queue.is_idle(collection_id), "cells were not filled at once"


async def _read_all(app: App, collection_id: CollectionId, layers: _Layers) -> None:
    """Read every cell as an export does, page by page."""
    first = 1
    while True:
        with layers.timed("export"):
            async with app.pool.connection() as connection:
                schema = await Definitions(connection).load_schema(collection_id)
                cells = Cells(connection, app.blobs)
                rows = await cells.next_rows(
                    collection_id, first=first, last=2**62, count_max=_PAGE_ROWS
                )
                await cells.read(schema, rows)
        if not rows:
            return
        first = rows[-1] + 1


async def _recompute(app: App, collection_id: CollectionId, layers: _Layers) -> None:
    with layers.timed("dispatch"):
        await app.dispatcher.dispatch(Request(collection_id=collection_id, force=True))
    queue = _TimedQueue(app.pool)
    queue.layers = layers
    filler = Filler(pool=app.pool, blobs=app.blobs, context=_context(app))
    n = INSTANT_CLAIM_CELLS
    capacity = Capacity(cost_class="instant", interactive_max=n, bulk_max=n, total_max=n)
    while True:
        with layers.timed("claim"):
            cells = await queue.claim("bench", [capacity], lease_seconds=_LEASE_SECONDS)
        if not cells:
            break
        with layers.timed("read and compute"):
            results = await _compute(filler, collection_id, cells)
        with layers.timed("finalize"):
            ended = list({cell.claim_id for cell in cells})
            outcomes = [result.outcome for result in results]
            await queue.finalize(collection_id, outcomes, ended=ended)
        with layers.timed("completion"):
            counts = Counter((o.cell.column_id, o.kind.value) for o in outcomes)
            await app.bus.completed(collection_id, counts, [])
    assert await queue.is_idle(collection_id), "cells were left in the queue"
    await filler.aclose()


def _context(app: App) -> ComputeContext:
    return ComputeContext(settings=app.settings, files=app.blobs)


async def _compute(
    filler: Filler, collection_id: CollectionId, cells: Sequence[ClaimedCell]
) -> list[Result]:
    return [result async for batch in filler.fill(collection_id, cells) for result in batch]


def _line(layers: _Layers, path: str, layer: str, cells: int) -> dict[str, Scalar]:
    seconds = layers.seconds[layer]
    total = sum(layers.seconds[name] for name in _PATHS[path])
    return {
        "path": path,
        "layer": layer,
        "calls": int(layers.calls[layer]),
        "us_per_cell": round(seconds / cells * 1e6, 1),
        "own_cpu_us_per_cell": round(layers.cpu_seconds[layer] / cells * 1e6, 1),
        "percent": round(seconds / total * 100, 1),
    }
