"""Runs one design in a process of its own, so that its memory is its own."""

from __future__ import annotations

import multiprocessing
import resource
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Final

import psutil

from everfill.bench.simulator.everfill_design import run_everfill
from everfill.bench.simulator.orchestrator_design import run_orchestrator
from everfill.bench.simulator.rules import compile_rules
from everfill.bench.simulator.scenario import Design, Report, Scenario

__all__ = ["simulate"]

_PEAK_UNIT_BYTES: Final = 1 if sys.platform == "darwin" else 1024


def simulate(design: Design, scenario: Scenario) -> Report:
    """Simulate in a fresh process; raises AssertionError where an invariant does not hold."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=1, mp_context=context) as executor:
        return executor.submit(_simulate_here, design, scenario).result()


def _simulate_here(design: Design, scenario: Scenario) -> Report:
    compile_rules()  # once a process, and no part of what is measured
    before = psutil.Process().memory_info().rss
    report = run_everfill(scenario) if design is Design.EVERFILL else run_orchestrator(scenario)
    return replace(report, measured_heap_bytes=max(0, _peak_bytes() - before))


def _peak_bytes() -> int:
    """The most resident memory this process had.

    Linux's `ru_maxrss` begins with the parent's peak, so the process's own record is read there.
    """
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _PEAK_UNIT_BYTES
