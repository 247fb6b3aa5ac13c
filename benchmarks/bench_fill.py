"""A fill of many rows with two chained `template` columns: every value checked, memory bounded.

    python benchmarks/bench_fill.py --rows 100000

Prints cells a second from start to end of the command (import, dispatch, compute, export), and the
most resident memory that each kind of process ever had.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil


def sample(process: psutil.Process, most: dict[str, int]) -> None:
    """Note the resident bytes of a command and of its workers."""
    try:
        for item in (process, *process.children(recursive=True)):
            words = item.cmdline()
            name = next((w for w in ("cell-worker", "setup-worker", "fill") if w in words), None)
            if name:
                most[name] = max(most.get(name, 0), item.memory_info().rss)
    except psutil.Error:
        return


def measure(rows: int) -> dict[str, object]:
    """Everything the benchmark prints."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source, out = folder / "words.csv", folder / "out.csv"
        source.write_text("word\n" + "".join(f"w{n}\n" for n in range(rows)), encoding="utf-8")
        command = [
            *(sys.executable, "-m", "everfill", "fill", str(source)),
            *("--column", "one = template: 1 {{word}}", "--column", "two = template: 2 {{one}}"),
            *("--out", str(out), "--data-dir", str(folder / "data")),
        ]
        started = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        watched, most = psutil.Process(process.pid), {}
        while process.poll() is None:
            sample(watched, most)
            time.sleep(0.1)
        seconds = time.perf_counter() - started
        with out.open(encoding="utf-8", newline="") as file:
            found = [tuple(row) for row in csv.reader(file)]
    wanted = [("word", "one", "two")] + [(f"w{n}", f"1 w{n}", f"2 1 w{n}") for n in range(rows)]
    return {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "python": platform.python_version(),
        "rows": rows,
        "exit_code": process.returncode,
        "every_value_right": found == wanted,
        "seconds": round(seconds, 1),
        "cells_per_second": round(2 * rows / seconds),
        "most_resident_mib": {k: round(v / 2**20) for k, v in most.items()},
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    print(json.dumps(measure(parser.parse_args().rows), indent=2))


if __name__ == "__main__":
    main()
