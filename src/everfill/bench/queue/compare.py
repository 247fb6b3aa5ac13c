"""All subjects at all depths, in turn, as one record."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Final

from everfill.bench.charts import draw_lines
from everfill.bench.queue.database import fresh_database
from everfill.bench.queue.everfill_subject import measure_everfill
from everfill.bench.queue.peer_subject import measure_peer
from everfill.bench.queue.plan import Measured, Plan
from everfill.bench.record import Goal, Record, Scalar, measure_noise

__all__ = ["compare", "plot"]

_EVERFILL: Final = "everfill"
_GOAL_CELLS_PER_SECOND: Final = 60_000
_GOAL_DEPTH: Final = 1_000_000
_GOAL_OVER_PEERS: Final = 2.0
_GOAL_FLATNESS: Final = 1.3
_NOTES: Final = (
    "Everfill keeps caps and virtual-time fairness; the others serve first in, first out.",
    "Every subject drains in a fresh database, after a vacuum; subjects take turns in each round.",
)


async def compare(server_url: str, plan: Plan, tell: Callable[[str], None]) -> Record:
    """Measure every subject of the plan.

    Raises:
        UnavailableError: A worker or a peer failed.
        AssertionError: A cap was exceeded, or a cell was lost.
    """
    noise = measure_noise()
    measured: list[Measured] = []
    for turn in range(plan.rounds):
        for subject, depth, batch, workers in _turns(plan, turn):
            tell(
                f"round {turn + 1}: {subject}, {depth:,} queued, batch {batch or 'its own'},"
                f" {workers} workers"
            )
            async with fresh_database(server_url) as url:
                found = (
                    await measure_peer(url, plan, subject, depth, workers)
                    if batch is None
                    else await measure_everfill(url, plan, depth, batch, workers)
                )
            tell(f"  {found.cells_per_second:,.0f} cells/s")
            measured.append(found)
    results = _medians(measured)
    return Record(
        benchmark="queue",
        settings=_settings(plan),
        results=[_line(result) for result in results],
        goals=_goals(results),
        notes=_NOTES,
        noise=noise,
    )


def plot(record: Record, path: Path) -> None:
    """Draw cells a second by depth, a line a subject."""
    series: dict[str, list[tuple[float, float]]] = {}
    for line in record.results:
        batch = line["batch"]
        name = f"{line['subject']}, batch {batch}" if batch else str(line["subject"])
        name += f", {line['workers']} workers"
        point = (float(str(line["depth"])), float(str(line["cells_per_second"])))
        series.setdefault(name, []).append(point)
    draw_lines(
        path,
        series,
        title="Claim and finalize, by queue and depth",
        x_label="cells queued",
        y_label="cells a second",
    )


def _turns(plan: Plan, turn: int) -> Iterator[tuple[str, int, int | None, int]]:
    """Subject, depth, batch (None: a peer) and workers, starting with another one each round."""
    for depth, workers in product(plan.depths, plan.workers):
        subjects: list[tuple[str, int | None]] = [(_EVERFILL, batch) for batch in plan.batches]
        if plan.peers_python and depth <= plan.peers_depth_max:
            subjects += [(peer, None) for peer in plan.peers]
        first = turn % len(subjects)
        for subject, batch in subjects[first:] + subjects[:first]:
            yield subject, depth, batch, workers


def _medians(measured: Sequence[Measured]) -> list[Measured]:
    """Of each subject, depth, batch and workers the median round by rate (the slower of two)."""
    groups: dict[tuple[str, int, int | None, int], list[Measured]] = {}
    for found in measured:
        key = (found.subject, found.depth, found.batch, found.workers)
        groups.setdefault(key, []).append(found)
    chosen: list[Measured] = []
    for group in groups.values():
        ordered = sorted(group, key=lambda found: found.cells_per_second)
        chosen.append(ordered[(len(ordered) - 1) // 2])
    return sorted(chosen, key=lambda found: (found.subject != _EVERFILL, found.subject))


def _goals(results: Sequence[Measured]) -> list[Goal]:
    ours = [found for found in results if found.subject == _EVERFILL]
    deep = [found for found in ours if found.depth == _GOAL_DEPTH]
    goals: list[Goal] = []
    if deep:
        best = max(found.cells_per_second for found in deep)
        goals.append(
            Goal(
                promise=f"{_GOAL_CELLS_PER_SECOND:,} cells/s with {_GOAL_DEPTH:,} queued",
                measured=f"{best:,.0f} cells/s",
                met=best >= _GOAL_CELLS_PER_SECOND,
            )
        )
    return [*goals, *_against_peers(results), *_flatness(ours)]


def _against_peers(results: Sequence[Measured]) -> Iterator[Goal]:
    depths = sorted({found.depth for found in results if found.batch is None})
    for depth in depths:
        rates = {
            is_ours: max(
                found.cells_per_second
                for found in results
                if found.depth == depth and (found.batch is not None) is is_ours
            )
            for is_ours in (True, False)
        }
        times = rates[True] / rates[False]
        yield Goal(
            promise=f"twice the fastest of the others at {depth:,} queued",
            measured=f"{times:.1f} times",
            met=times >= _GOAL_OVER_PEERS,
        )


def _flatness(ours: Sequence[Measured]) -> Iterator[Goal]:
    """How much longer a claim takes at the deepest queue than at the shallowest, by batch."""
    for batch, workers in sorted({(f.batch, f.workers) for f in ours if f.batch}):
        own = sorted(
            (f for f in ours if (f.batch, f.workers) == (batch, workers)),
            key=lambda found: found.depth,
        )
        if len(own) > 1 and own[0].claim_p50_ms and own[-1].claim_p50_ms:
            times = own[-1].claim_p50_ms / own[0].claim_p50_ms
            yield Goal(
                promise=f"a claim of {batch} by {workers} workers at {own[-1].depth:,}"
                f" within {_GOAL_FLATNESS} times one at {own[0].depth:,}",
                measured=f"{times:.2f} times",
                met=times <= _GOAL_FLATNESS,
            )


def _settings(plan: Plan) -> dict[str, Scalar]:
    return {
        key: value if isinstance(value, int) else ", ".join(map(str, value))
        for key, value in asdict(plan).items()
        if key != "peers_python"
    }


def _line(found: Measured) -> dict[str, Scalar]:
    return {
        key: round(value, 4 if key == "fairness_index" else 1)
        if isinstance(value, float)
        else value
        for key, value in asdict(found).items()
    }
