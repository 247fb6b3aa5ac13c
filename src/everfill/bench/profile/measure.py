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
from everfill.autofill.columns import ColumnDraft
from everfill.autofill.dispatch import Request
from everfill.autofill.edits import SourceValues
from everfill.autofill.filler import Filler
from everfill.autofill.finalizer import Result
from everfill.autofill.queue import Capacity, ClaimedCell, Queue
from everfill.bench.charts import draw_bars
from everfill.bench.fill.everfill_subject import measure_everfill
from everfill.bench.fill.plan import Work
from everfill.bench.record import Goal, Record, Scalar, measure_noise
from everfill.bench.scratch import scratch_settings
from everfill.compute.protocol import ComputeContext
from everfill.infra.postgres import Connection
from everfill.kernel import limits
from everfill.kernel.ids import CellKey, CollectionId
from everfill.tables.definitions import Definitions

__all__ = ["measure", "plot"]

_LEASE_SECONDS: Final = 60.0
_STATEMENTS: Final = ("import", "dispatch", "claim", "finalize", "release of dependents")
_TIMES_MAX: Final = 2.0


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


async def measure(rows: int, tell: Callable[[str], None]) -> Record:
    """Fill two chained templates by hand, then with the command."""
    noise = measure_noise()
    layers = _Layers()
    with scratch_settings() as settings:
        async with open_app(settings, name="everfill-bench") as app:
            tell(f"by hand: {rows:,} rows, two templates")
            await _fill_by_hand(app, rows, layers)
    work = Work(name="two templates", rows=rows)
    tell("the same by the command")
    whole = await measure_everfill(work, slots=20, provider_url=None)
    total = sum(layers.seconds.values())
    ceiling = sum(layers.seconds[name] for name in _STATEMENTS)
    assert whole.seconds, "a fill by the command has a time"
    times = whole.seconds / ceiling
    return Record(
        benchmark="profile",
        settings={"rows": rows, "columns": 2},
        results=[_line(layers, layer, work.cells, total) for layer in layers.seconds],
        goals=[
            Goal(
                promise=f"a whole fill within {_TIMES_MAX:.0f} times its statements by hand",
                measured=f"{times:.2f} times ({whole.seconds:.1f} s and {ceiling:.1f} s)",
                met=times <= _TIMES_MAX,
            )
        ],
        notes=[f"The statements are: {', '.join(_STATEMENTS)}. Nothing overlaps by hand."],
        noise=noise,
    )


def plot(record: Record, path: Path) -> None:
    """Draw the microseconds of a cell, a bar a layer."""
    bars = {str(line["layer"]): float(str(line["us_per_cell"])) for line in record.results}
    draw_bars(path, bars, title="A cell's life", x_label="microseconds a cell")


async def _fill_by_hand(app: App, rows: int, layers: _Layers) -> None:
    collection_id = await _import(app, rows, layers)
    with layers.timed("dispatch"):
        await app.dispatcher.dispatch(Request(collection_id=collection_id))
    queue = _TimedQueue(app.pool)
    queue.layers = layers
    filler = Filler(
        pool=app.pool,
        blobs=app.blobs,
        context=ComputeContext(settings=app.settings, files=app.blobs),
    )
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


async def _import(app: App, rows: int, layers: _Layers) -> CollectionId:
    """A table of one word a row, and two columns computed from it."""
    async with app.pool.connection() as connection:
        made = await Definitions(connection).create_collection("default", "words")
    key = made.collection_id
    word = await app.columns.add(key, ColumnDraft(name="word"), author="bench")
    for start in range(0, rows, limits.IMPORT_CHUNK_ROWS):
        numbers = range(start, min(rows, start + limits.IMPORT_CHUNK_ROWS))
        batch = [SourceValues(str(n), {word: f"w{n}"}) for n in numbers]
        with layers.timed("import"):
            await app.edits.take_rows(key, batch, update=False)
    for name, template in (("one", "1 {{word}}"), ("two", "2 {{one}}")):
        draft = ColumnDraft(name=name, kind="template", template=template)
        await app.columns.add(key, draft, author="bench")
    return key


async def _compute(
    filler: Filler, collection_id: CollectionId, cells: Sequence[ClaimedCell]
) -> list[Result]:
    return [result async for batch in filler.fill(collection_id, cells) for result in batch]


def _line(layers: _Layers, layer: str, cells: int, total: float) -> dict[str, Scalar]:
    seconds = layers.seconds[layer]
    return {
        "layer": layer,
        "calls": int(layers.calls[layer]),
        "us_per_cell": round(seconds / cells * 1e6, 1),
        "own_cpu_us_per_cell": round(layers.cpu_seconds[layer] / cells * 1e6, 1),
        "percent": round(seconds / total * 100, 1),
    }
