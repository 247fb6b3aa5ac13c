"""The queue benchmark measures a real drain, and its record says where it was taken."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from everfill.bench.queue import Plan, compare, plot
from everfill.infra.postgres import Pool
from everfill.kernel.errors import InvalidError


@pytest.fixture
def server_url(pool: Pool) -> str:
    return pool.conninfo


async def test_a_drain_at_depth_is_counted_whole_and_shared_evenly(
    server_url: str, tmp_path: Path
) -> None:
    plan = Plan(
        depths=[3_200],
        drain=1_600,
        batches=[50],
        collections=8,
        namespaces=2,
        rounds=1,
        workers=[2],
    )
    told: list[str] = []
    record = await compare(server_url, plan, told.append)
    (line,) = record.results
    assert line["subject"] == "everfill"
    assert line["depth"] == 3_200
    assert line["drained"] == 1_600
    assert float(str(line["fairness_index"])) > 0.95
    assert float(str(line["wal_bytes_per_cell"])) > 100
    assert len(told) == 2
    record.write(tmp_path / "record.json")
    body = json.loads((tmp_path / "record.json").read_text())
    assert body["machine"]["cores"] >= 1
    assert body["settings"]["workers"] == "2"
    plot(record, tmp_path / "chart.svg")
    assert (tmp_path / "chart.svg").read_text().startswith("<?xml")


def test_a_plan_that_cannot_be_measured_is_refused() -> None:
    with pytest.raises(InvalidError, match="cannot fill 16 tables"):
        Plan(depths=[10])
    with pytest.raises(InvalidError, match="no Python at"):
        Plan(depths=[100], peers_python=Path("/nowhere/python"))
