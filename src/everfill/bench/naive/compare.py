"""The naive design until it breaks, and Everfill on as many cells, as one record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from everfill.app import open_app
from everfill.autofill.dispatch import Request
from everfill.bench.charts import draw_lines
from everfill.bench.fill.everfill_subject import measure_everfill
from everfill.bench.fill.plan import Work
from everfill.bench.naive.plan import NaivePlan
from everfill.bench.naive.report import Outcome, Trial
from everfill.bench.naive.run import run_naive
from everfill.bench.record import Record, Scalar, measure_noise
from everfill.bench.scratch import scratch_settings
from everfill.bench.words import make_words, recompute_by_command
from everfill.infra.stack import open_stack
from everfill.infra.stack.client import stack_paths

__all__ = ["compare", "plot"]

_OURS: Final = "everfill"
_WORDS_MAX: Final = 120
_NOTES: Final = (
    "gathered and chained: every activity awaited in one workflow, one column and two.",
    "windowed and continued: the repairs people reach for, some 50 activities in flight.",
    "everfill: `everfill fill` of two templates, as many cells in all, its start included.",
    "Columns that call nothing are filled where they are dispatched.",
    "everfill, by the queue: the same through claims and workers, by `everfill reprocess --wait`.",
    "Everfill is measured before and after the others; the slower one counts.",
)


async def compare(
    plan: NaivePlan, everfill_cells: Sequence[int], tell: Callable[[str], None]
) -> Record:
    """Try every size of the plan on an embedded Temporal of its own, then Everfill."""
    noise = measure_noise()
    before = await _measure_ours(everfill_cells, tell)
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
    after = await _measure_ours(everfill_cells, tell)
    lines += [
        min(pair, key=lambda line: float(str(line["cells_per_second"])))
        for pair in zip(before, after, strict=True)
    ]
    return Record(
        benchmark="naive",
        settings={
            "rows": ", ".join(map(str, plan.rows)),
            "repaired_rows": ", ".join(map(str, plan.repaired_rows)),
            "everfill_cells": ", ".join(map(str, everfill_cells)),
            "history_events_max": plan.history_events_max,
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


async def _measure_ours(
    sizes: Sequence[int], tell: Callable[[str], None]
) -> list[dict[str, Scalar]]:
    lines: list[dict[str, Scalar]] = []
    for cells in sizes:
        rows = -(-cells // 2)
        tell(f"{_OURS}, {cells:,} cells")
        work = Work(name="two templates", rows=rows)
        found = await measure_everfill(work, slots=20, provider_url=None)
        assert found.seconds, "a fill has a time"
        lines.append(_our_line(_OURS, work.cells, found.lost_cells or 0, found.seconds))
        with scratch_settings() as settings:
            async with open_app(settings, name="everfill-bench") as app:
                collection_id = await make_words(app, rows)
                await app.dispatcher.dispatch(Request(collection_id=collection_id))
                seconds = await recompute_by_command(app)
        lines.append(_our_line(f"{_OURS}, by the queue", work.cells, 0, seconds))
    return lines


def _our_line(design: str, cells: int, lost_cells: int, seconds: float) -> dict[str, Scalar]:
    return {
        "design": design,
        "cells": cells,
        "outcome": (Outcome.BROKE if lost_cells else Outcome.COMPLETED).value,
        "cells_done": cells - lost_cells,
        "cells_per_second": round(cells / seconds, 1),
        "history_events": None,
        "error": None,
    }


def _told_of_break(trial: Trial) -> str:
    """Where a shape's growth ends, in the server's words."""
    return f"{trial.shape} breaks at {trial.cells:,} cells: {trial.error}"
