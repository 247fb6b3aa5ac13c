"""The orchestrator alone: one durable activity a cell, all futures in one selector."""

from __future__ import annotations

import time
from typing import Final

import numpy as np

from everfill.bench.simulator.scenario import Design, Report, Scenario

__all__ = ["run_orchestrator"]

_FUTURE_BYTES: Final = 96
"""A future, its callback and its place in the selector, while the workflow is in memory."""


def run_orchestrator(scenario: Scenario) -> Report:
    """Simulate one workflow that schedules an activity for every cell and waits for all of them.

    Workers take activities in order, as many at once as in the other design. Each round is one
    workflow task, in which the selector looks at every future.
    """
    started = time.perf_counter()
    history = np.empty(scenario.cells * scenario.events_per_cell, np.uint32)
    history[: scenario.cells] = np.arange(scenario.cells)  # every activity is scheduled at once
    events, polled, rounds = scenario.cells, 0, 0
    is_open = np.ones(scenario.cells, np.bool_)
    while True:
        ready = np.flatnonzero(is_open)[: scenario.slots]
        polled += scenario.cells
        if not len(ready):
            break
        rounds += 1
        is_open[ready] = False
        for _ in range(scenario.events_per_cell - 1):
            history[events : events + len(ready)] = ready
            events += len(ready)
    elapsed_seconds = time.perf_counter() - started
    assert events == len(history), "a cell did not settle"
    in_flight = min(scenario.slots, scenario.cells)
    history_bytes = events * scenario.event_bytes
    held = scenario.cells * (_FUTURE_BYTES + scenario.payload_bytes)
    return Report(
        design=Design.ORCHESTRATOR,
        cells=scenario.cells,
        elapsed_seconds=elapsed_seconds,
        cells_per_second=scenario.cells / elapsed_seconds,
        rounds=rounds,
        calls=scenario.cells,
        late_results=0,
        outdated=0,
        failed=0,
        cpu_units=events + polled,
        application_heap_bytes=history_bytes + held,
        durable_bytes=history_bytes + scenario.cells * scenario.payload_bytes,
        history_events=events,
        history_events_most=events,
        measured_heap_bytes=0,
        fairness_index=None,
        in_flight_most=(in_flight, in_flight),
        edit_wait_rounds_p99=None,
    )
