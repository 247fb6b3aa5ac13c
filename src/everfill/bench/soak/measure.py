"""`everfill up`, its capacity, then work at a share of it, looked at all the while."""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Final

import psutil

from everfill.app import App, open_app
from everfill.bench.charts import draw_lines
from everfill.bench.fill.provider_process import open_provider
from everfill.bench.record import Goal, Record, Scalar, measure_noise
from everfill.bench.scratch import scratch_settings
from everfill.bench.soak.load import Load, Table
from everfill.bench.soak.observe import Observer
from everfill.bench.soak.plan import Plan
from everfill.bench.statistics import percentile_ms
from everfill.infra.postgres import load_queries
from everfill.infra.redis import open_redis
from everfill.infra.temporal import connect_temporal
from everfill.kernel.ids import CellKey, RowId
from everfill.kernel.tasks import end_tasks

__all__ = ["measure", "plot"]

_QUERIES: Final = load_queries("everfill.bench.soak", "soak.sql")
_BACKLOG_CELLS: Final = 4_000
"""What is asked for ahead while the capacity is measured: enough for every worker's claims."""
_LOOK_SECONDS: Final = 0.001
_PACE_SECONDS: Final = 0.02
_EDIT_PAUSE_SECONDS: Final = 0.5
_QUARTERS: Final = 4
_CLAIM: Final = "edit_to_claim_p50_ms"
_SLOWEST: Final = "edit_to_claim_slowest_ms"
_MINUTES: Final = "minutes"
_MEMORY_GROWTH_MAX: Final = 1.10
_TABLE_GROWTH_MAX: Final = 1.20
_LATENCY_GROWTH_MAX: Final = 1.30
_ALLOWANCE_MIB: Final = 4.0  # what a small process or table may gain, whatever its ratio
_ALLOWANCE_MS: Final = 1.0
_EVENTS_MAX: Final = 2_100  # a history is continued as a new one at 2,000
_KEPT_UP: Final = 0.98
_SIZES: Final = ("cells_mib", "queue_mib", "rows_mib", "redis_used_mib", "temporal_file_mib")
_CHARTED: Final = (
    "memory_of_postgres_mib",
    "memory_of_cell_worker_1_mib",
    "memory_of_setup_worker_mib",
    "memory_of_temporal_mib",
    "cells_mib",
    _CLAIM,
)


async def measure(plan: Plan, tell: Callable[[str], None]) -> Record:
    """Run it, and judge the last quarter of the time by the second one.

    Raises:
        UnavailableError: Everfill did not come up, or went down.
    """
    noise = measure_noise()
    async with _installation(plan) as (app, observer):
        load = Load(app, plan)
        tell(f"importing {plan.tables} tables of {plan.rows:,} rows")
        await load.prepare()
        pieces = load.pieces()
        tell(f"measuring the capacity, {plan.capacity_seconds:g} s")
        capacity = await _measure_capacity(app, pieces, plan.capacity_seconds)
        asked_rate = capacity * plan.load
        tell(f"capacity {capacity:,.0f} cells/s; {plan.minutes:g} minutes at {asked_rate:,.0f}")
        samples: list[dict[str, Scalar]] = []
        asked = await _soak(app, load, pieces, observer, samples, plan, asked_rate)
        left = await _backlog(app)
    results = _by_quarters(samples)
    return Record(
        benchmark="soak",
        settings=asdict(plan),
        results=results,
        goals=[
            *_goals({str(line["figure"]): line for line in results}),
            *_load_goals(asked, asked_rate * plan.minutes * 60, left),
        ],
        notes=[
            f"Capacity {capacity:,.0f} cells/s; {asked:,} cells were asked for.",
            "Medians of each quarter of the time; the first one is warm-up.",
        ],
        samples=samples,
        noise=noise,
    )


def plot(record: Record, path: Path) -> None:
    """Draw the figures that must stay flat, each by its own median in the second quarter."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for name in _CHARTED:
        points = [(_number(s[_MINUTES]), _number(s[name])) for s in record.samples if name in s]
        level = _median([figure for _, figure in points], 1)
        if level:
            lines[_words(name)] = [(at, figure / level) for at, figure in points]
    draw_lines(
        path,
        lines,
        title="Mixed work below capacity",
        x_label="minutes",
        y_label="of the second quarter's median",
        log=False,
    )


@asynccontextmanager
async def _installation(plan: Plan) -> AsyncGenerator[tuple[App, Observer], None]:
    """`everfill up` as a user starts it, with a model that answers like a provider's."""
    async with AsyncExitStack() as stack:
        settings = stack.enter_context(scratch_settings())
        url = await stack.enter_async_context(open_provider(plan.latency_ms))
        app = await stack.enter_async_context(open_app(settings, name="everfill-bench"))
        environment = os.environ | {
            "EVERFILL_AI__BASE_URL": f"{url}/v1",
            "EVERFILL_AI__API_KEY": "none",
            "EVERFILL_AI__MODEL": "bench",
        }
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "everfill", "up", "--workers", str(plan.workers)),
            *("--data-dir", str(settings.data_dir)),
            env=environment,
            stderr=asyncio.subprocess.DEVNULL,
        )
        stack.push_async_callback(_end, process)
        temporal = await connect_temporal(settings.temporal, app.endpoints.temporal_address)
        redis = await stack.enter_async_context(open_redis(app.endpoints.redis_url))
        yield app, Observer(app, psutil.Process(process.pid), temporal, redis)


async def _end(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        process.terminate()
    await process.wait()


async def _measure_capacity(app: App, pieces: AsyncGenerator[int, None], seconds: float) -> float:
    """Cells a second while there is always more to do; the first third is warm-up."""
    began = time.perf_counter()
    asked, done_before, counted_from = 0, 0, None
    while (now := time.perf_counter()) - began < seconds:
        backlog = await _backlog(app)
        if counted_from is None and now - began > seconds / 3:
            done_before, counted_from = asked - backlog, now
        if backlog < _BACKLOG_CELLS:
            asked += await anext(pieces)
        else:
            await asyncio.sleep(_PACE_SECONDS)
    done = asked - await _backlog(app) - done_before
    return max(1.0, done) / (time.perf_counter() - (counted_from or began))


async def _soak(
    app: App,
    load: Load,
    pieces: AsyncGenerator[int, None],
    observer: Observer,
    samples: list[dict[str, Scalar]],
    plan: Plan,
    rate: float,
) -> int:
    """Ask for work at a rate until the time is up; returns the cells asked for."""
    latencies: list[float] = []
    tasks = [
        asyncio.create_task(_edit(app, load.tables[0], latencies)),
        asyncio.create_task(_observe(observer, samples, latencies, plan.sample_seconds)),
    ]
    began, asked = time.perf_counter(), 0
    try:
        while (elapsed := time.perf_counter() - began) < plan.minutes * 60:
            if asked < rate * elapsed:
                asked += await anext(pieces)
            else:
                await asyncio.sleep(_PACE_SECONDS)
            for task in tasks:
                if task.done():
                    task.result()
        return asked
    finally:
        await end_tasks(tasks)


async def _edit(app: App, table: Table, latencies: list[float]) -> None:
    """Type over a word now and then; note how long its dependent waits for a worker."""
    for number in range(10**9):
        row = RowId(table.first + table.rows // 2 + number % (table.rows // 4))
        key = CellKey(row, table.ids["word"])
        await app.edits.set_cells(table.collection_id, {key: f"edit {number}"}, author="bench")
        started = time.perf_counter()
        params = {
            "collection_id": table.collection_id,
            "row_id": row,
            "column_id": table.ids["one"],
        }
        async with app.pool.connection() as connection:
            while True:
                found = await (await connection.execute(_QUERIES["is_waiting"], params)).fetchone()
                assert found
                if not found[0]:
                    break
                await asyncio.sleep(_LOOK_SECONDS)
        latencies.append(time.perf_counter() - started)
        await asyncio.sleep(_EDIT_PAUSE_SECONDS)


async def _observe(
    observer: Observer,
    samples: list[dict[str, Scalar]],
    latencies: list[float],
    every_seconds: float,
) -> None:
    began = time.perf_counter()
    while True:
        await asyncio.sleep(every_seconds)
        figures = await observer.look()
        if latencies:
            figures[_CLAIM] = percentile_ms(latencies, 0.5) or 0.0
            figures[_SLOWEST] = max(latencies) * 1_000
            latencies.clear()
        minutes = round((time.perf_counter() - began) / 60, 2)
        samples.append({_MINUTES: minutes, **{name: round(f, 2) for name, f in figures.items()}})


async def _backlog(app: App) -> int:
    async with app.pool.connection() as connection:
        found = await (await connection.execute(_QUERIES["backlog"])).fetchone()
    assert found
    return int(found[0])


def _by_quarters(samples: Sequence[Mapping[str, Scalar]]) -> list[dict[str, Scalar]]:
    """A line a figure: its median in each quarter of the samples, and its most."""
    names = dict.fromkeys(name for sample in samples for name in sample if name != _MINUTES)
    lines: list[dict[str, Scalar]] = []
    for name in names:
        figures = [_number(sample[name]) for sample in samples if name in sample]
        medians = [_median(figures, quarter) for quarter in range(_QUARTERS)]
        quarters = {f"quarter_{n}": median for n, median in enumerate(medians, start=1)}
        lines.append({"figure": name, **quarters, "most": max(figures)})
    return lines


def _median(figures: Sequence[float], quarter: int) -> float | None:
    """Of the figures in one quarter of them, counted from 0; None where there are none."""
    count = len(figures)
    part = figures[count * quarter // _QUARTERS : count * (quarter + 1) // _QUARTERS]
    return round(statistics.median(part), 2) if part else None


def _number(figure: Scalar) -> float:
    assert isinstance(figure, (int, float))
    return float(figure)


def _goals(lines: Mapping[str, Mapping[str, Scalar]]) -> Iterator[Goal]:
    memory = [name for name in lines if name.startswith("memory_of_")]
    for name in memory:
        yield _flat(lines[name], _MEMORY_GROWTH_MAX, _ALLOWANCE_MIB)
    for name in _SIZES:
        yield _flat(lines[name], _TABLE_GROWTH_MAX, _ALLOWANCE_MIB)
    yield _flat(lines[_CLAIM], _LATENCY_GROWTH_MAX, _ALLOWANCE_MS)
    longest = _number(lines["longest_open_history_events"]["most"])
    yield Goal(
        promise=f"no open history longer than {_EVENTS_MAX:,} events",
        measured=f"{longest:,.0f}",
        met=longest <= _EVENTS_MAX,
    )
    restarts = _number(lines["processes_started_anew"]["most"])
    yield Goal(
        promise="no process died", measured=f"{restarts:,.0f} started anew", met=not restarts
    )


def _load_goals(asked: int, planned: float, left: int) -> Iterator[Goal]:
    yield Goal(
        promise="the load was the one that was planned",
        measured=f"{asked / planned:.2%} of {planned:,.0f} cells asked for",
        met=asked >= planned * _KEPT_UP,
    )
    done = (asked - left) / max(1, asked)
    yield Goal(
        promise="what is asked for is done in time",
        measured=f"{done:.2%} of {asked:,} cells when the time was up",
        met=done >= _KEPT_UP,
    )


def _flat(line: Mapping[str, Scalar], growth_max: float, allowance: float) -> Goal:
    """The last quarter at most so many times the second, or a little more than it."""
    before, after = line["quarter_2"], line["quarter_4"]
    name = str(line["figure"])
    if before is None or after is None:
        return Goal(promise=f"flat: {_words(name)}", measured="too few samples", met=False)
    early, late = _number(before), _number(after)
    return Goal(
        promise=f"flat: {_words(name)}",
        measured=f"{early:,.1f} in the second quarter, {late:,.1f} in the last",
        met=late <= max(early * growth_max, early + allowance),
    )


def _words(name: str) -> str:
    return name.replace("_", " ")
