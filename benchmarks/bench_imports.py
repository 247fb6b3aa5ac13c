"""How fast tables are written and read, and in how much memory: 1,000,000 rows of three columns.

Run: python benchmarks/bench_imports.py [ROWS]. Each step runs in a process of its own, so that its
peak memory is its own. Rates are per second of processor time, for the machine may be busy; `open`
is the first reading, for types and bad rows.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from everfill.kernel import limits
from everfill.tables.exports import SinkColumn, SinkRow, open_sink
from everfill.tables.imports import open_source
from everfill.tables.imports.source import SyncSource
from everfill.tables.type_syntax import parse_type

_COLUMNS = [
    SinkColumn(name="id", type=parse_type("number")),
    SinkColumn(name="text", type=parse_type("text")),
    SinkColumn(name="score", type=parse_type("number")),
]
_SUFFIXES = ("csv", "jsonl", "parquet", "xlsx")


def write(path: Path, rows: int) -> None:
    """Write the rows in batches as an export does."""
    with open_sink(path, _COLUMNS) as sink:
        for start in range(0, rows, limits.IMPORT_CHUNK_ROWS):
            numbers = range(start, min(start + limits.IMPORT_CHUNK_ROWS, rows))
            sink.write(
                [SinkRow((n, f"review {n}: it came late, but it works", n / 4)) for n in numbers]
            )


def read(path: Path, rows: int) -> None:
    """Open (types and bad rows), then read every row."""
    started = time.process_time()
    source = open_source(path, on_bad_row="stop")
    opened = time.process_time() - started
    assert isinstance(source, SyncSource)
    count = sum(len(batch) for batch in source.read(limits.IMPORT_CHUNK_ROWS))
    assert count == rows, count
    passed = time.process_time() - started - opened
    print(f"  open {opened:6.2f} s, read {passed:6.2f} s = {rows / passed:10,.0f} rows/s", end="")


def main() -> None:
    """Run every step in its own process and print its figures."""
    if len(sys.argv) == 4:
        path, rows = Path(sys.argv[2]), int(sys.argv[3])
        started, clock = time.process_time(), time.perf_counter()
        {"write": write, "read": read}[sys.argv[1]](path, rows)
        passed = time.process_time() - started
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        rate = rows / passed
        print(f"  total {passed:6.2f} s = {rate:10,.0f} rows/s, peak {peak:5.0f} MB", end="")
        print(f"  ({time.perf_counter() - clock:.1f} s by the clock)")
        return
    rows = sys.argv[1] if len(sys.argv) == 2 else "1000000"
    with tempfile.TemporaryDirectory() as folder:
        for suffix in _SUFFIXES:
            path = Path(folder) / f"table.{suffix}"
            for step in ("write", "read"):
                print(f"{suffix:8} {step:6}", end="", flush=True)
                command = [sys.executable, __file__, step, str(path), rows]
                subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
