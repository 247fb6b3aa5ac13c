"""Two workers on a bulk run of slow calls; now and then one cell is edited."""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from everfill.app import App, open_app
from everfill.autofill.columns import ColumnDraft
from everfill.autofill.dispatch import Request
from everfill.autofill.edits import SourceValues
from everfill.bench.charts import draw_bars
from everfill.bench.fill.provider_process import open_provider
from everfill.bench.record import Goal, Record, Scalar, measure_noise
from everfill.bench.scratch import scratch_settings
from everfill.bench.statistics import percentile_ms
from everfill.infra.postgres import load_queries
from everfill.kernel.errors import InvalidError, UnavailableError
from everfill.kernel.ids import CellKey, CollectionId, ColumnId, RowId
from everfill.tables.definitions import Definitions

__all__ = ["Plan", "measure", "plot"]

_QUERIES: Final = load_queries("everfill.bench.edit", "edit.sql")
_IMPORT_ROWS: Final = 5_000
_SMALL_ROWS: Final = 1_000
_LOOK_SECONDS: Final = 0.001
_CAP_LOOK_SECONDS: Final = 0.005
_PAUSE_SECONDS: Final = (0.05, 0.2)
_GOAL_MS: Final = 20.0
_START_SECONDS_MAX: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to measure.

    Attributes:
        cells: Cells of the bulk run.
        edits: Edits in its collection, and as many in another one.
        workers: Cell workers, of 20 slots each.
        latency_ms: How long a call takes.
        cap_cells: Most cells in flight of a collection; below the slots of all workers, so that it
            binds.
    """

    cells: int = 1_000_000
    edits: int = 150
    workers: int = 2
    latency_ms: int = 50
    cap_cells: int = 30

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if value < 1:
                raise InvalidError("plan_invalid", f"{name} is {value}; it must be at least 1.")


@dataclass(frozen=True, slots=True)
class _Table:
    collection_id: CollectionId
    word: ColumnId
    answer: ColumnId
    rows: int


@dataclass(slots=True)
class _Caps:
    samples: int = 0
    most: dict[int, int] = field(default_factory=dict[int, int])


async def measure(plan: Plan, tell: Callable[[str], None]) -> Record:
    """Queue the bulk run, start the workers, edit.

    Raises:
        AssertionError: A cap was exceeded.
    """
    noise = measure_noise()
    with scratch_settings() as settings:
        async with (
            open_provider(plan.latency_ms) as url,
            open_app(settings, name="everfill-bench") as app,
        ):
            tell(f"importing {plan.cells:,} rows")
            big = await _make_table(app, "big", plan.cells, plan.cap_cells)
            small = await _make_table(app, "small", _SMALL_ROWS, plan.cap_cells)
            tell(f"queueing {plan.cells:,} cells")
            started = time.perf_counter()
            await app.dispatcher.dispatch(Request(collection_id=big.collection_id))
            dispatch_seconds = time.perf_counter() - started
            tell(f"editing {2 * plan.edits} cells")
            async with _workers(plan, settings.data_dir, url), _watching_caps(app) as caps:
                same, other = await _edit_all(app, plan, big, small, caps)
            backlog = await app.queue.backlog(big.collection_id)
    most = max(caps.most.values())
    assert most <= plan.cap_cells, f"a cap of {plan.cap_cells} cells was exceeded: {most}"
    lines = [_line("same collection", same), _line("another collection", other)]
    return Record(
        benchmark="edit",
        settings=asdict(plan),
        results=lines,
        goals=_goals(lines),
        notes=[
            (
                f"From an edit's commit to the claim of the cell that depends on it, with"
                f" {sum(lane.depth for lane in backlog):,} cells still queued at the end."
            ),
            (
                f"In {caps.samples:,} samples a collection had at most {most} cells in flight, of"
                f" {plan.cap_cells}."
            ),
            f"Dispatch of the bulk run: {plan.cells / dispatch_seconds:,.0f} cells/s.",
        ],
        noise=noise,
    )


def plot(record: Record, path: Path) -> None:
    """Draw the latencies."""
    bars = {
        f"{line['edited']}, {name}": float(str(line[key]))
        for line in record.results
        for name, key in (("p50", "claim_p50_ms"), ("p99", "claim_p99_ms"))
    }
    draw_bars(path, bars, title="From an edit to its claim", x_label="milliseconds")


async def _make_table(app: App, name: str, rows: int, cap_cells: int) -> _Table:
    """A collection of `word` and of a model's `answer`."""
    async with app.pool.connection() as connection:
        made = await Definitions(connection).create_collection("default", name, cap_cells=cap_cells)
    key = made.collection_id
    word = await app.columns.add(key, ColumnDraft(name="word"), author="bench")
    draft = ColumnDraft(name="answer", kind="ai", template="{{word}}")
    answer = await app.columns.add(key, draft, author="bench")
    for start in range(0, rows, _IMPORT_ROWS):
        numbers = range(start, min(rows, start + _IMPORT_ROWS))
        batch = [SourceValues(str(n), {word: f"w{n}"}) for n in numbers]
        await app.edits.take_rows(key, batch, update=False)
    return _Table(key, word, answer, rows)


@asynccontextmanager
async def _workers(plan: Plan, data_dir: Path, provider_url: str) -> AsyncGenerator[None, None]:
    environment = os.environ | {
        "EVERFILL_AI__BASE_URL": f"{provider_url}/v1",
        "EVERFILL_AI__API_KEY": "none",
        "EVERFILL_AI__MODEL": "bench",
    }
    command = [sys.executable, "-m", "everfill", "cell-worker", "--data-dir", str(data_dir)]
    quiet = asyncio.subprocess.DEVNULL
    workers = [
        await asyncio.create_subprocess_exec(*command, env=environment, stderr=quiet)
        for _ in range(plan.workers)
    ]
    try:
        yield
    finally:
        for worker in workers:
            worker.terminate()
        await asyncio.gather(*(worker.wait() for worker in workers))


@asynccontextmanager
async def _watching_caps(app: App) -> AsyncGenerator[_Caps, None]:
    """The most cells that each collection ever had in flight."""
    caps = _Caps()

    async def watch() -> None:
        async with app.pool.connection() as connection:
            while True:
                cursor = await connection.execute(_QUERIES["in_flight"])
                for collection_id, n in await cursor.fetchall():
                    caps.most[collection_id] = max(caps.most.get(collection_id, 0), n)
                caps.samples += 1
                await asyncio.sleep(_CAP_LOOK_SECONDS)

    task = asyncio.create_task(watch())
    try:
        yield caps
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    if not task.cancelled() and (error := task.exception()):
        raise error


async def _edit_all(
    app: App, plan: Plan, big: _Table, small: _Table, caps: _Caps
) -> tuple[list[float], list[float]]:
    """Seconds of edits in the collection of the bulk run, and in the other."""
    chance = random.Random(1)  # noqa: S311 - a choice of rows, no secret
    began = time.perf_counter()
    while not caps.most:
        if time.perf_counter() - began > _START_SECONDS_MAX:
            raise UnavailableError("bench_workers_failed", "The workers did not take up any cell.")
        await asyncio.sleep(_CAP_LOOK_SECONDS)
    same: list[float] = []
    other: list[float] = []
    for number in range(plan.edits):
        late = RowId(chance.randint(big.rows // 2, big.rows))
        same.append(await _edit(app, big, late, f"s{number}"))
        other.append(await _edit(app, small, RowId(chance.randint(1, small.rows)), f"o{number}"))
        await asyncio.sleep(chance.uniform(*_PAUSE_SECONDS))
    return same, other


async def _edit(app: App, table: _Table, row: RowId, text: str) -> float:
    key = CellKey(row, table.word)
    await app.edits.set_cells(table.collection_id, {key: text}, author="bench")
    started = time.perf_counter()
    params = {
        "collection_id": table.collection_id,
        "row_id": row,
        "column_id": table.answer,
    }
    async with app.pool.connection() as connection:
        while True:
            cursor = await connection.execute(_QUERIES["is_claimed"], params)
            found = await cursor.fetchone()
            if found is None or found[0]:  # gone: it is computed already
                return time.perf_counter() - started
            await asyncio.sleep(_LOOK_SECONDS)


def _line(edited: str, seconds: list[float]) -> dict[str, Scalar]:
    return {
        "edited": edited,
        "edits": len(seconds),
        "claim_p50_ms": percentile_ms(seconds, 0.5),
        "claim_p99_ms": percentile_ms(seconds, 0.99),
    }


def _goals(lines: list[dict[str, Scalar]]) -> list[Goal]:
    return [
        Goal(
            promise=f"an edit in {line['edited']} is claimed under {_GOAL_MS:.0f} ms at p99",
            measured=f"{line['claim_p99_ms']} ms",
            met=float(str(line["claim_p99_ms"])) < _GOAL_MS,
        )
        for line in lines
    ]
