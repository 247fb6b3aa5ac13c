"""Everfill as a subject: `everfill fill` as a user runs it, watched from outside."""

from __future__ import annotations

import asyncio
import csv
import os
import random
import sys
import time
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psutil

from everfill import __version__
from everfill.app.wiring import App, open_app
from everfill.bench.fill.plan import Measured, Work
from everfill.bench.fill.provider_process import count_calls
from everfill.bench.fill.usage import UsageMeter
from everfill.bench.scratch import scratch_settings
from everfill.bench.statistics import percentile_ms
from everfill.infra.postgres import load_queries
from everfill.infra.stack.client import stack_paths
from everfill.infra.stack.state import find_live_state
from everfill.kernel.config import Settings
from everfill.kernel.errors import UnavailableError
from everfill.kernel.ids import CellKey, CollectionId, ColumnId, RowId
from everfill.tables.definitions import Definitions

__all__ = ["measure_everfill"]

_QUERIES: Final = load_queries("everfill.bench.fill", "watch.sql")
_TABLE: Final = "words"
_TEMPLATES: Final = ("one = template: 1 {{word}}", "two = template: 2 {{one}}")
_MODEL: Final = ("one = ai: {{word}}",)
_LOOK_SECONDS: Final = 0.002
_PAUSE_SECONDS: Final = 0.2
_PATIENCE_SECONDS: Final = 900.0


@dataclass(slots=True)
class _Fill:
    """One command and where it works."""

    settings: Settings
    folder: Path
    work: Work
    slots: int
    provider_url: str | None
    process: asyncio.subprocess.Process | None = None
    edits: list[float] = field(default_factory=list[float])
    edited: dict[int, str] = field(default_factory=dict[int, str])

    @property
    def out(self) -> Path:
        """What it writes."""
        return self.folder / "filled.csv"

    async def start(self) -> None:
        """Run the command, in a session of its own."""
        columns = _TEMPLATES if self.work.latency_ms is None else _MODEL
        environment = dict(os.environ)
        if self.provider_url:
            environment |= {
                "EVERFILL_AI__BASE_URL": f"{self.provider_url}/v1",
                "EVERFILL_AI__API_KEY": "none",
                "EVERFILL_AI__MODEL": "bench",
                "EVERFILL_WORKER__SLOTS": str(self.slots),
            }
        self.process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "everfill", "fill", str(self.folder / f"{_TABLE}.csv")),
            *(part for column in columns for part in ("--column", column)),
            *("--out", str(self.out), "--data-dir", str(self.settings.data_dir)),
            env=environment,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )

    def pids(self) -> Iterator[int]:
        """The command and the servers."""
        if self.process and self.process.returncode is None:
            yield self.process.pid
        state = find_live_state(stack_paths(self.settings))
        if state:
            yield state.supervisor_pid

    async def wait(self) -> None:
        """Until it is done.

        Raises:
            UnavailableError: It failed.
        """
        assert self.process
        async with asyncio.timeout(_PATIENCE_SECONDS):
            code = await self.process.wait()
        if code:
            raise UnavailableError("bench_fill_failed", f"The fill ended with exit code {code}.")

    async def kill(self) -> None:
        """Kill the command with its workers, where it still runs."""
        if self.process is None or self.process.returncode is not None:
            return
        with suppress(psutil.Error):
            command = psutil.Process(self.process.pid)
            for process in (command, *command.children(recursive=True)):
                process.kill()
        await self.process.wait()

    def wrong_cells(self) -> int:
        """Cells that are missing or not what they should be; edited rows as they were edited."""
        with self.out.open(encoding="utf-8", newline="") as file:
            found = [tuple(row) for row in csv.reader(file)][1:]
        wanted = [self._row(self.edited.get(n + 1, f"w{n}")) for n in range(self.work.rows)]
        wrong = sum(
            a != b
            for row, right in zip(found, wanted, strict=False)
            for a, b in zip(row[1:], right[1:], strict=True)
        )
        return wrong + (len(wanted) - len(found)) * (len(wanted[0]) - 1)

    def _row(self, word: str) -> tuple[str, ...]:
        if self.work.latency_ms is None:
            return word, f"1 {word}", f"2 1 {word}"
        return word, word.upper()


async def measure_everfill(work: Work, *, slots: int, provider_url: str | None) -> Measured:
    """Fill a table in an installation of its own, whose servers run already."""
    with scratch_settings() as settings:
        async with open_app(settings, name="everfill-bench") as app:
            fill = _Fill(settings, settings.data_dir, work, slots, provider_url)
            _write_words(fill.folder / f"{_TABLE}.csv", work.rows)
            calls = await count_calls(provider_url) if provider_url else 0
            meter = UsageMeter(fill.pids)
            meter.begin()
            started = time.perf_counter()
            await fill.start()
            try:
                async with _watching(app, fill, meter) as first_cell:
                    if work.kill and provider_url:
                        await _kill_at_half(fill, provider_url, calls)
                        await fill.start()
                    await fill.wait()
            finally:
                await fill.kill()
            seconds = time.perf_counter() - started
            meter.look()
            spent = await count_calls(provider_url) - calls if provider_url else 0
            wrong_cells = fill.wrong_cells()
    return Measured(
        subject="everfill",
        version=__version__,
        work=work.name,
        cells=work.cells,
        seconds=seconds,
        cells_per_second=work.cells / seconds,
        cpu_us_per_cell=meter.cpu_seconds / work.cells * 1e6,
        peak_resident_mib=meter.peak_bytes / 2**20,
        first_cell_seconds=first_cell.seen_at - started if first_cell.seen_at else None,
        edit_p50_ms=percentile_ms(fill.edits, 0.5),
        edit_p99_ms=percentile_ms(fill.edits, 0.99),
        spent_passes=spent / work.cells if work.kill else None,
        lost_cells=wrong_cells,
    )


@dataclass(slots=True)
class _FirstCell:
    seen_at: float | None = None


@asynccontextmanager
async def _watching(app: App, fill: _Fill, meter: UsageMeter) -> AsyncGenerator[_FirstCell, None]:
    """Look on from outside, and edit rows in mid-run where the work says so."""
    first = _FirstCell()
    tasks = [asyncio.create_task(meter.watch()), asyncio.create_task(_see_first(app, first))]
    if fill.work.edits:
        tasks.append(asyncio.create_task(_edit(app, fill)))
    try:
        yield first
    finally:
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
    for error in ended:
        if isinstance(error, Exception):
            raise error


async def _see_first(app: App, first: _FirstCell) -> None:
    while not await _one(app, "any_answer"):
        await asyncio.sleep(_LOOK_SECONDS * 10)
    first.seen_at = time.perf_counter()


async def _edit(app: App, fill: _Fill) -> None:
    """Type over words of rows whose turn is far off, one after the other."""
    chance = random.Random(1)  # noqa: S311 - a choice of rows, no secret
    collection_id, word, one = await _columns(app)
    while int(str(await _one(app, "answers"))) < fill.work.rows // 20:
        await asyncio.sleep(_PAUSE_SECONDS)
    for number in range(fill.work.edits):
        row = RowId(chance.randint(fill.work.rows * 3 // 4, fill.work.rows))
        text = f"edit{number}"
        fill.edited[row] = text
        started = time.perf_counter()
        await app.edits.set_cells(collection_id, {CellKey(row, word): text}, author="bench")
        params = {"collection_id": collection_id, "row_id": row, "column_id": one}
        while await _one(app, "answer", params) != text.upper():
            await asyncio.sleep(_LOOK_SECONDS)
        fill.edits.append(time.perf_counter() - started)
        await asyncio.sleep(_PAUSE_SECONDS)


async def _columns(app: App) -> tuple[CollectionId, ColumnId, ColumnId]:
    """The table, its input and what is computed from it, once they are there."""
    while True:
        async with app.pool.connection() as connection:
            definitions = Definitions(connection)
            found = await definitions.find_collection("default", _TABLE)
            schema = await definitions.load_schema(found.collection_id) if found else None
        if schema and {"word", "one"} <= schema.ids.keys():
            return schema.collection_id, schema.ids["word"], schema.ids["one"]
        await asyncio.sleep(_PAUSE_SECONDS)


async def _kill_at_half(fill: _Fill, provider_url: str, before: int) -> None:
    """Kill the command with its workers once half of the calls are made."""
    assert fill.process
    while await count_calls(provider_url) - before < fill.work.cells // 2:
        if fill.process.returncode is not None:
            raise UnavailableError("bench_fill_failed", "The fill ended before half of its calls.")
        await asyncio.sleep(_LOOK_SECONDS)
    await fill.kill()


async def _one(app: App, query: str, params: Mapping[str, int] | None = None) -> object:
    async with app.pool.connection() as connection:
        cursor = await connection.execute(_QUERIES[query], params)
        row = await cursor.fetchone()
    return row[0] if row else None


def _write_words(path: Path, rows: int) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write("word\n")
        file.writelines(f"w{n}\n" for n in range(rows))
