"""How soon an edit starts while a bulk run is queued, and whether caps hold meanwhile.

    python benchmarks/bench_edit_latency.py --cells 1000000 --edits 200

Two cell workers of 20 slots compute a bulk run of calls that take 50 ms each. Every now and
then one cell of another collection is edited, and one of the same. The latency is from the
edit's commit to the claim of the cell that depends on it, by the database's clock.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PLUGINS = Path(__file__).parent.parent / "tests" / "plugins"
sys.path.insert(0, str(PLUGINS))

from everfill.app import App, open_app  # noqa: E402 - the plug-ins must be on the path first
from everfill.autofill.columns import ColumnDraft  # noqa: E402
from everfill.autofill.dispatch import Request  # noqa: E402
from everfill.autofill.edits import SourceValues  # noqa: E402
from everfill.kernel.config import Settings  # noqa: E402
from everfill.kernel.ids import CellKey, CollectionId, ColumnId, RowId  # noqa: E402
from everfill.tables.definitions import Definitions  # noqa: E402

CAP = 30  # under the 40 slots of two workers, so that it binds


async def make_table(
    app: App, name: str, rows: int, seconds: float
) -> tuple[CollectionId, ColumnId, ColumnId]:
    """A collection of `word` and `slow`, which takes `seconds` a cell."""
    async with app.pool.connection() as connection:
        made = await Definitions(connection).create_collection("default", name, cap_cells=CAP)
    word = await app.columns.add(made.collection_id, ColumnDraft(name="word"), author="bench")
    slow = await app.columns.add(
        made.collection_id,
        ColumnDraft(
            name="slow", kind="test:slow", template="{{word}}", options={"seconds": seconds}
        ),
        author="bench",
    )
    for start in range(0, rows, 5_000):
        batch = [
            SourceValues(str(n), {word: f"w{n}"}) for n in range(start, min(rows, start + 5_000))
        ]
        await app.edits.take_rows(made.collection_id, batch, update=False)
    return made.collection_id, word, slow


async def edit_once(
    app: App, collection_id: CollectionId, word: ColumnId, slow: ColumnId, row: int, text: str
) -> float:
    """Seconds from the edit's commit to the claim of its dependent (seen by polling claims)."""
    key = CellKey(RowId(row), word)
    await app.edits.set_cells(collection_id, {key: text}, author="bench")
    started = time.perf_counter()
    async with app.pool.connection() as connection:
        while True:
            cursor = await connection.execute(
                "select q.seq <= l.cursor_seq from queue q join lanes l using (lane_id)"
                " where q.collection_id = %s and q.row_id = %s and q.column_id = %s"
                " and q.seq is not null",
                [collection_id, row, slow],
            )
            found = await cursor.fetchone()
            if found is None or found[0]:
                return time.perf_counter() - started
            await asyncio.sleep(0.001)


async def watch_caps(app: App, worst: dict[str, int]) -> None:
    """Note the most cells that each collection ever had in flight."""
    async with app.pool.connection() as connection:
        while True:
            cursor = await connection.execute(
                "select collection_id, sum(n) from claims group by collection_id"
            )
            for collection_id, n in await cursor.fetchall():
                worst[str(collection_id)] = max(worst.get(str(collection_id), 0), int(n))
            worst["samples"] = worst.get("samples", 0) + 1
            await asyncio.sleep(0.005)


def percentile(values: list[float], share: float) -> float:
    """In milliseconds."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))] * 1_000


async def measure(cells: int, edits: int) -> dict[str, object]:
    """Everything the benchmark prints."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(data_dir=Path(folder))
        async with open_app(settings) as app:
            big, big_word, big_slow = await make_table(app, "big", cells, 0.05)
            small, small_word, small_slow = await make_table(app, "small", 1_000, 0.05)
            started = time.perf_counter()
            await app.dispatcher.dispatch(Request(collection_id=big))
            dispatch_seconds = time.perf_counter() - started
            environment = {**os.environ, "PYTHONPATH": str(PLUGINS)}
            command = [sys.executable, "-m", "everfill", "cell-worker", "--data-dir", folder]
            workers = [
                subprocess.Popen(  # noqa: ASYNC220 - once, before anything is measured
                    command, env=environment, stderr=subprocess.DEVNULL
                )
                for _ in range(2)
            ]
            worst: dict[str, int] = {}
            watcher = asyncio.create_task(watch_caps(app, worst))
            try:
                while not worst.get(str(big)):
                    await asyncio.sleep(0.1)
                same, other = [], []
                for n in range(edits):
                    row = random.randint(cells // 2, cells)
                    same.append(await edit_once(app, big, big_word, big_slow, row, f"s{n}"))
                    row = random.randint(1, 1_000)
                    other.append(await edit_once(app, small, small_word, small_slow, row, f"o{n}"))
                    await asyncio.sleep(random.uniform(0.05, 0.2))
                backlog = await app.queue.backlog(big)
            finally:
                watcher.cancel()
                for worker in workers:
                    worker.terminate()
                for worker in workers:
                    worker.wait()
    return {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "python": platform.python_version(),
        "cells": cells,
        "edits": edits,
        "dispatch_cells_per_second": round(cells / dispatch_seconds),
        "queued_at_the_end": sum(lane.depth for lane in backlog),
        "same_collection_ms": {p: round(percentile(same, p / 100), 1) for p in (50, 99)},
        "other_collection_ms": {p: round(percentile(other, p / 100), 1) for p in (50, 99)},
        "cap": CAP,
        "most_in_flight": max(worst.get(str(big), 0), worst.get(str(small), 0)),
        "cap_samples": worst["samples"],
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", type=int, default=1_000_000)
    parser.add_argument("--edits", type=int, default=200)
    arguments = parser.parse_args()
    print(json.dumps(asyncio.run(measure(arguments.cells, arguments.edits)), indent=2))


if __name__ == "__main__":
    main()
