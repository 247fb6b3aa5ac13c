"""The naive design until it breaks, and Everfill on as many cells, as one record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from everfill.bench.charts import draw_lines
from everfill.bench.fill.everfill_subject import measure_everfill
from everfill.bench.fill.plan import Work
from everfill.bench.naive.plan import NaivePlan
from everfill.bench.naive.report import Outcome, Trial
from everfill.bench.naive.run import run_naive
from everfill.bench.record import Record, Scalar, measure_noise
from everfill.bench.scratch import scratch_settings
from everfill.infra.stack import open_stack
from everfill.infra.stack.client import stack_paths

__all__ = ["compare", "plot"]

_OURS: Final = "everfill"
_WORDS_MAX: Final = 120
_NOTES: Final = (
    "gathered and chained: every activity awaited in one workflow, one column and two.",
    "windowed and continued: the repairs people reach for, some 50 activities in flight.",
    "everfill: `everfill fill` of two templates, as many cells in all, its start included.",
)


async def compare(
    plan: NaivePlan, everfill_cells: Sequence[int], tell: Callable[[str], None]
) -> Record:
    """Try every size of the plan on an embedded Temporal of its own, then Everfill."""
    noise = measure_noise()
    with scratch_settings() as settings:
        database_file = stack_paths(settings).temporal_file
        async with open_stack(settings, linger_seconds=0.0) as stack:
            report = await run_naive(
                stack.temporal_address,
                plan,
                database_file=database_file,
                on_trial=lambda trial: tell(_told(trial)),
            )
    lines = [_line(trial) for trial in report.trials]
    for cells in everfill_cells:
        tell(f"{_OURS}, {cells:,} cells")
        lines.append(await _everfill_line(cells))
    return Record(
        benchmark="naive",
        settings={
            "seconds_max": plan.seconds_max,
            "slots": plan.slots,
            "pollers": plan.pollers,
            "in_flight_max": plan.in_flight_max,
            "word_chars": plan.word_chars,
        },
        results=lines,
        notes=[*_NOTES, *map(_told_of_break, report.first_breaks().values())],
        noise=noise,
    )


def plot(record: Record, path: Path) -> None:
    """Draw cells a second by cells, of what came to its end."""
    series: dict[str, list[tuple[float, float]]] = {}
    for line in record.results:
        if line["outcome"] == Outcome.COMPLETED:
            point = (float(str(line["cells"])), float(str(line["cells_per_second"])))
            series.setdefault(str(line["design"]), []).append(point)
    draw_lines(
        path,
        series,
        title="One activity a cell, and Everfill",
        x_label="cells",
        y_label="cells a second",
    )


def _told(trial: Trial) -> str:
    rate = f"{trial.cells_per_second:,.0f} cells/s"
    return f"{trial.shape}, {trial.cells:,} cells: {trial.outcome}, {rate}"


def _line(trial: Trial) -> dict[str, Scalar]:
    return {
        "design": trial.shape.value,
        "cells": trial.cells,
        "outcome": trial.outcome.value,
        "cells_done": trial.cells_done,
        "cells_per_second": round(trial.cells_per_second, 1),
        "history_events": trial.history_events,
        "error": trial.error[:_WORDS_MAX] if trial.error else None,
    }


async def _everfill_line(cells: int) -> dict[str, Scalar]:
    work = Work(name="two templates", rows=-(-cells // 2))
    found = await measure_everfill(work, slots=20, provider_url=None)
    return {
        "design": _OURS,
        "cells": work.cells,
        "outcome": (Outcome.BROKE if found.lost_cells else Outcome.COMPLETED).value,
        "cells_done": work.cells - (found.lost_cells or 0),
        "cells_per_second": round(found.cells_per_second or 0.0, 1),
        "history_events": None,
        "error": None,
    }


def _told_of_break(trial: Trial) -> str:
    """Where a shape's growth ends, in the server's words."""
    return f"{trial.shape} breaks at {trial.cells:,} cells: {trial.error}"
