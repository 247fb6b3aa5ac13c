"""The benchmarks of whole fills measure real ones, and say what came out right."""

from __future__ import annotations

from pathlib import Path

import pytest

from everfill.bench.edit import Plan as EditPlan
from everfill.bench.edit import measure as measure_edits
from everfill.bench.fill import Plan, compare, plot
from everfill.bench.fill.everfill_subject import measure_everfill
from everfill.bench.fill.plan import Work
from everfill.bench.fill.provider_process import count_calls, open_provider
from everfill.bench.fill.usage import UsageMeter
from everfill.bench.profile import measure as measure_layers
from everfill.kernel.errors import InvalidError


def ignore(_: str) -> None:
    """Nobody needs to be told here."""


async def test_a_fill_of_two_templates_is_measured_from_outside(tmp_path: Path) -> None:
    record = await compare(Plan(rows=200, latencies_ms=[], rounds=1), ignore)
    (line,) = record.results
    assert (line["subject"], line["cells"], line["lost_cells"]) == ("everfill", 400, 0)
    for figure in ("cells_per_second", "cpu_us_per_cell", "peak_resident_mib"):
        assert float(str(line[figure])) > 0
    assert line["first_cell_seconds"] is not None
    plot(record, tmp_path / "fill.png")
    assert (tmp_path / "fill.png").read_bytes().startswith(b"\x89PNG")


async def test_a_killed_fill_pays_one_pass_and_what_was_in_flight() -> None:
    work = Work(name="killed", rows=120, latency_ms=50, kill=True)
    async with open_provider(50) as url:
        found = await measure_everfill(work, slots=10, provider_url=url)
        assert await count_calls(url) == round(found.spent_passes * 120)
    assert found.lost_cells == 0
    assert 120 <= found.spent_passes * 120 <= 120 + 20  # ten calls, and ten claimed ahead


async def test_edits_in_mid_run_are_timed_and_kept() -> None:
    work = Work(name="edited", rows=400, latency_ms=100, edits=2)
    async with open_provider(100) as url:
        found = await measure_everfill(work, slots=10, provider_url=url)
    assert found.lost_cells == 0
    assert found.edit_p50_ms is not None
    assert found.edit_p50_ms > 100  # a call is in it


async def test_edits_behind_a_bulk_run_are_claimed_within_the_caps() -> None:
    record = await measure_edits(EditPlan(cells=600, edits=2, workers=1, cap_cells=5), ignore)
    assert [line["edited"] for line in record.results] == ["same collection", "another collection"]
    assert all(line["edits"] == 2 for line in record.results)


async def test_the_layers_of_a_cells_life_add_up() -> None:
    record = await measure_layers(300, ignore)
    layers: dict[str, dict[str, float]] = {}
    for line in record.results:
        percent = float(str(line["percent"]))
        layers.setdefault(str(line["path"]), {})[str(line["layer"])] = percent
    assert {path: list(found) for path, found in layers.items()} == {
        "new rows": ["import", "fill at once", "compute at once", "export"],
        "recompute": [
            "dispatch",
            "claim",
            "read and compute",
            "finalize",
            "release of dependents",
            "completion",
        ],
    }
    for found in layers.values():
        assert sum(found.values()) == pytest.approx(100, abs=1)
    assert record.goals == []  # of so few rows the start is most of it


def test_a_meter_counts_the_processes_that_it_is_told_of() -> None:
    meter = UsageMeter(lambda: [1 << 22])  # no such process
    meter.begin()
    meter.look()
    assert (meter.cpu_seconds, meter.peak_bytes) == (0, 0)


def test_a_plan_that_cannot_be_measured_is_refused() -> None:
    with pytest.raises(InvalidError, match="no Python at"):
        Plan(pixeltable_python=Path("/nowhere/python"))
    with pytest.raises(InvalidError, match="rows is 0"):
        Plan(rows=0)
