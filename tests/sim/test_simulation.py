"""Everfill's engine under thousands of fault mixtures, each decided by one seed.

Real, unchanged, is everything above the statements: the cell worker with its claim loop, slots,
leases, give-back and drain, the filler, the finalizer, the queue, the dispatcher, immediate fill,
edits, changes of columns, the janitor and its clock, and the pure rules of
`everfill.autofill.machine`.

Simulated are the event loop (`sim_loop`: time is a number, the seed orders what is ready, processes
can be killed at any await, frozen and thawed), the server (`sim_postgres`: transactions, locks,
lost connections and lost answers, a clock that jumps), what each statement does (`sim_queue_sql`,
`sim_claim_sql`, `sim_heal_sql`, `sim_fill_sql`, `sim_table_sql`: every transition of a cell is
asked of the machine), the kinds (`sim_kinds`: slow, failing, deadly) and the people (`sim_people`).
That the SQL does the same as the machine is the matter of `tests/machine`.

`sim_checks` says what must hold at every commit and after calm. A failure names its seed; rerun it,
with every step printed, by

    SIM_SEED=n python -m pytest -s tests/sim/test_simulation.py -k calm
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest
from sim_rows import TABLES
from sim_world import Report, World

DAILY_SEEDS = 200
SLOW_SEEDS = 5_000
_AGAIN = "SIM_SEED={} python -m pytest -s tests/sim/test_simulation.py -k calm"
_DIGEST = "from sim_world import World; print(World(7, traced=True).run().digest)"


def run_all(seeds: Iterable[int]) -> list[Report]:
    """Run seeds until one fails."""
    reports: list[Report] = []
    for seed in seeds:
        report = World(seed).run()
        again = _AGAIN.format(seed)
        assert not report.failures, f"seed {seed}: {'; '.join(report.failures)}\nrerun: {again}"
        reports.append(report)
    return reports


def test_whatever_went_wrong_all_is_right_after_calm() -> None:
    if seed := os.environ.get("SIM_SEED"):
        report = World(int(seed), traced=True).run()
        sys.stdout.write("\n".join([*report.trace, *report.failures, ""]))
        assert not report.failures
        return
    reports = run_all(range(DAILY_SEEDS))
    told: Counter[str] = Counter()
    for report in reports:
        told.update(report.told)
    all_of = {"filled", "settle", "again", "stale", "retry", "lost", "given back", "withdrawn"}
    missing = all_of - told.keys()
    assert not missing, f"nothing of this was ever simulated: {missing}"


@pytest.mark.slow
def test_whatever_went_wrong_all_is_right_after_calm_in_thousands_of_runs() -> None:
    run_all(range(DAILY_SEEDS, SLOW_SEEDS))


def test_a_seed_always_gives_the_same_run() -> None:
    seeds = [0, 7, 11]
    here = [World(seed, traced=True).run().digest for seed in seeds]
    assert here == [World(seed, traced=True).run().digest for seed in seeds]
    assert len(set(here)) == len(seeds)


def test_a_seed_gives_the_same_run_in_another_process() -> None:
    folder = Path(__file__).parent
    path = os.pathsep.join(str(Path(entry).resolve()) for entry in sys.path)
    printed = [
        subprocess.run(
            [sys.executable, "-c", _DIGEST],
            cwd=folder,
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert printed == [f"{World(7, traced=True).run().digest}\n"] * 2


def test_a_run_leaves_nothing_in_the_queue() -> None:
    world = World(3)
    world.run()
    left = {table: len(world.server.database.tables[table]) for table in TABLES}
    assert (left["queue"], left["claims"]) == (0, 0)
    assert left["cells"] > 0
