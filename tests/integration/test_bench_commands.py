"""Benchmarks as a user runs them: a command that ends well and leaves a record and a chart."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

_MINUTES = 0.15


def bench(folder: Path, *arguments: str) -> dict[str, Any]:
    file = folder / "record.json"
    subprocess.run(
        [sys.executable, "-m", "everfill", "bench", *arguments, "--out", str(file)],
        check=True,
        timeout=180,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    return json.loads(file.read_text())


def test_the_simulator_runs_from_the_command_line(tmp_path: Path) -> None:
    record = bench(tmp_path, "simulate", "--cells", "2_000", "--workers", "3")
    assert {result["cells"] for result in record["results"]} == {2_000}


@pytest.fixture(scope="module")
def soaked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Mapping[str, Any], Path]:
    folder = tmp_path_factory.mktemp("soak")
    chart = folder / "soak.svg"
    times = ("--minutes", str(_MINUTES), "--capacity-seconds", "3", "--sample-seconds", "1")
    return bench(folder, "soak", *times, "--load", "0.5", "--plot", str(chart)), chart


def test_a_soak_looks_at_every_process_table_and_server(
    soaked: tuple[Mapping[str, Any], Path],
) -> None:
    record, chart = soaked
    figures = {line["figure"]: line for line in record["results"]}
    processes = ("client", "up", "cell_worker_1", "cell_worker_2", "setup_worker")
    servers = ("supervisor", "postgres", "temporal", "redis")
    for name in (*processes, *servers):
        assert figures[f"memory_of_{name}_mib"]["most"] > 1.0
    assert figures["cells_mib"]["most"] > 1.0
    assert figures["open_workflows"]["most"] >= 1
    assert figures["edit_to_claim_p50_ms"]["most"] > 0.0
    assert chart.read_text().count("<path") > 10


def test_a_soak_gets_done_what_it_asks_for(soaked: tuple[Mapping[str, Any], Path]) -> None:
    record, _ = soaked
    done = next(goal for goal in record["goals"] if goal["promise"].startswith("what is asked for"))
    asked = int(done["measured"].split(" of ")[1].split()[0].replace(",", ""))
    assert asked > 1_000
    planned = next(g for g in record["goals"] if g["promise"].startswith("the load was"))
    assert planned["met"], planned
    waiting = next(line for line in record["results"] if line["figure"] == "cells_unsettled")
    assert waiting["most"] < asked


def test_a_benchmark_that_is_told_to_end_leaves_nothing_running(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "everfill", "bench", "soak", "--minutes", "5"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        command = psutil.Process(process.pid)
        deadline = time.monotonic() + 60
        while not _is_at_work(command):
            assert time.monotonic() < deadline
            time.sleep(0.2)
        started = command.children(recursive=True)
        process.terminate()
        process.wait(60)
    _, left = psutil.wait_procs(started, timeout=60)
    assert left == []
    assert list(tmp_path.glob("everfill-bench-*")) == []


def _is_at_work(command: psutil.Process) -> bool:
    children = command.children(recursive=True)
    return any("cell-worker" in child.cmdline() for child in children if child.is_running())
