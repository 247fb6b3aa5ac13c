"""Both designs at several sizes, as one record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Final

from everfill.bench.charts import draw_lines
from everfill.bench.record import Goal, Record, Scalar, measure_noise
from everfill.bench.simulator.run import simulate
from everfill.bench.simulator.scenario import Design, Report, Scenario

__all__ = ["compare", "plot"]

_PUBLISHED_CELLS_PER_SECOND: Final = {1_000_000: 710_000, 10_000_000: 1_350_000}
_NOTES: Final = (
    "Everfill's cells obey the rules of everfill.autofill.machine, asked of it at the start.",
    "Modelled figures follow from counts and sizes; memory and times are measured, on one core.",
    "Signals, failures and losses happen in Everfill's design alone.",
)


def compare(
    scenario: Scenario, sizes: Sequence[int], tell: Callable[[str], None] = lambda _: None
) -> Record:
    """Simulate both designs at each size, each in a process of its own.

    Args:
        scenario: Everything but the number of cells.
        sizes: Numbers of cells.
        tell: Told what runs now.

    Raises:
        AssertionError: An invariant does not hold.
    """
    noise = measure_noise()
    reports: list[Report] = []
    for cells in sizes:
        for design in Design:
            tell(f"{design}, {cells:,} cells")
            reports.append(simulate(design, replace(scenario, cells=cells)))
    settings = {key: value for key, value in asdict(scenario).items() if key != "cells"}
    return Record(
        benchmark="simulate",
        settings=settings,
        results=[_line(report) for report in reports],
        goals=[goal for report in reports for goal in _goals(report)],
        notes=_NOTES,
        noise=noise,
    )


def plot(record: Record, path: Path) -> None:
    """Draw what each design must hold in memory, by cells, both axes logarithmic."""
    series = {
        f"{design}: {name}": [
            (float(str(line["cells"])), float(str(line[key])) / 2**20)
            for line in record.results
            if line["design"] == design
        ]
        for design in Design
        for name, key in (
            ("application heap", "application_heap_bytes"),
            ("durable bytes", "durable_bytes"),
        )
    }
    draw_lines(
        path,
        series,
        title="What a bulk fill needs, by design (modelled)",
        x_label="cells",
        y_label="MiB",
    )


def _line(report: Report) -> dict[str, Scalar]:
    body, fairness = asdict(report), report.fairness_index
    of_collection, of_namespace = report.in_flight_most
    del body["in_flight_most"]
    return {
        **body,
        "design": report.design.value,
        "elapsed_seconds": round(report.elapsed_seconds, 3),
        "cells_per_second": round(report.cells_per_second),
        "fairness_index": None if fairness is None else round(fairness, 4),
        "in_flight_most_of_a_collection": of_collection,
        "in_flight_most_of_a_namespace": of_namespace,
    }


def _goals(report: Report) -> list[Goal]:
    published = _PUBLISHED_CELLS_PER_SECOND.get(report.cells)
    if report.design is not Design.EVERFILL or published is None:
        return []
    return [
        Goal(
            promise=f"more than {published:,} cells/s at {report.cells:,} cells, on one core",
            measured=f"{report.cells_per_second:,.0f} cells/s",
            met=report.cells_per_second > published,
        )
    ]
