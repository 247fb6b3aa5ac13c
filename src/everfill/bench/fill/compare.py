"""Every fill by every subject, in turn, as one record."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Final

from everfill.bench.charts import draw_bars
from everfill.bench.fill.everfill_subject import measure_everfill
from everfill.bench.fill.pixeltable_subject import measure_pixeltable
from everfill.bench.fill.plan import Measured, Plan, Work
from everfill.bench.fill.provider_process import open_provider
from everfill.bench.record import Goal, Record, Scalar, measure_noise

__all__ = ["compare", "plot"]

_OURS: Final = "everfill"
_EDIT_TIMES_MIN: Final = 50
_NOTES: Final = (
    "Everfill is the command as users run it, with its workers; only its servers run already.",
    "Pixeltable is one process that has started already, with its Postgres.",
)


async def compare(plan: Plan, tell: Callable[[str], None]) -> Record:
    """Measure every fill of the plan.

    Raises:
        UnavailableError: A fill failed.
    """
    noise = measure_noise()
    measured: list[Measured] = []
    for turn in range(plan.rounds):
        for work in plan.works:
            async with _provider(work) as url:
                for subject in _subjects(plan, turn):
                    tell(f"round {turn + 1}: {subject}, {work.name}, {work.rows:,} rows")
                    measured.append(await _measure(plan, subject, work, url))
    results = _medians(measured)
    return Record(
        benchmark="fill",
        settings={
            "rows": plan.rows,
            "latencies_ms": ", ".join(map(str, plan.latencies_ms)),
            "provider_rows": plan.provider_rows,
            "slots": plan.slots,
            "edits": plan.edits,
            "edit_rows": plan.edit_rows,
            "rounds": plan.rounds,
        },
        results=[_line(result) for result in results],
        goals=[*_goals(plan, results)],
        notes=_NOTES,
        noise=noise,
    )


def plot(record: Record, path: Path) -> None:
    """Draw cells a second, a bar for each work and subject."""
    bars = {
        f"{line['work']}: {line['subject']}": float(str(line["cells_per_second"]))
        for line in record.results
        if line["cells_per_second"]
    }
    draw_bars(
        path, bars, title="A whole fill, import to last cell", x_label="cells a second", log=True
    )


@asynccontextmanager
async def _provider(work: Work) -> AsyncGenerator[str | None, None]:
    if work.latency_ms is None:
        yield None
        return
    async with open_provider(work.latency_ms) as url:
        yield url


def _subjects(plan: Plan, turn: int) -> list[str]:
    """Everfill, and Pixeltable where it is there; who begins changes from round to round."""
    subjects = [_OURS, "pixeltable"] if plan.pixeltable_python else [_OURS]
    return subjects if turn % 2 == 0 else subjects[::-1]


async def _measure(plan: Plan, subject: str, work: Work, url: str | None) -> Measured:
    if subject == _OURS:
        return await measure_everfill(work, slots=plan.slots, provider_url=url)
    assert plan.pixeltable_python
    return await measure_pixeltable(
        plan.pixeltable_python, work, slots=plan.slots, provider_url=url
    )


def _medians(measured: Sequence[Measured]) -> list[Measured]:
    """For each work and subject the round with the median rate (the slower of two)."""
    groups: dict[tuple[str, str], list[Measured]] = {}
    for found in measured:
        groups.setdefault((found.work, found.subject), []).append(found)
    ordered = [sorted(group, key=lambda f: f.cells_per_second or 0.0) for group in groups.values()]
    return [group[(len(group) - 1) // 2] for group in ordered]


def _goals(plan: Plan, results: Sequence[Measured]) -> Iterator[Goal]:
    works = {work.name: work for work in plan.works}
    for ours in (found for found in results if found.subject == _OURS):
        rivals = [f for f in results if f.work == ours.work and f.subject != _OURS]
        yield Goal(
            promise=f"no cell lost or wrong: {ours.work}",
            measured=f"{ours.lost_cells} of {ours.cells:,}",
            met=ours.lost_cells == 0,
        )
        if ours.spent_passes is not None:
            yield Goal(
                promise="spend after kill -9 at most one pass and the calls in flight",
                measured=f"{ours.spent_passes:.3f} passes",
                met=ours.spent_passes <= 1 + plan.slots / ours.cells,
            )
        for rival in rivals:
            yield from _against(ours, rival, works[ours.work])


def _against(ours: Measured, rival: Measured, work: Work) -> Iterator[Goal]:
    if work.edits:
        promise = f"an edit in mid-run under 1/{_EDIT_TIMES_MIN} of {rival.subject}'s time"
        if not (ours.edit_p50_ms and rival.edit_p50_ms):
            yield Goal(promise=promise, measured="no edit fell into the run", met=False)
            return
        times = rival.edit_p50_ms / ours.edit_p50_ms
        yield Goal(
            promise=promise,
            measured=f"1/{times:.0f} ({ours.edit_p50_ms:.0f} and {rival.edit_p50_ms:.0f} ms)",
            met=times > _EDIT_TIMES_MIN,
        )
    elif ours.spent_passes is None and ours.cells_per_second and rival.cells_per_second:
        yield Goal(
            promise=f"more cells/s than {rival.subject}: {ours.work}",
            measured=f"{ours.cells_per_second:,.0f} and {rival.cells_per_second:,.0f}",
            met=ours.cells_per_second > rival.cells_per_second,
        )


def _line(found: Measured) -> dict[str, Scalar]:
    return {
        key: round(value, 3 if key == "spent_passes" else 1) if isinstance(value, float) else value
        for key, value in asdict(found).items()
    }
