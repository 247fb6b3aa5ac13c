"""The simulator obeys the machine, and its invariants can fail."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from everfill.autofill.machine import Cell, State
from everfill.bench.simulator import Design, Scenario, compare, simulate
from everfill.bench.simulator.cells import ArrayCells, ObjectCells, Tokens
from everfill.bench.simulator.everfill_design import Simulation, run_everfill
from everfill.bench.simulator.orchestrator_design import run_orchestrator
from everfill.bench.simulator.rules import STATES, Happening, compile_rules
from everfill.bench.statistics import jain, percentile_ms
from everfill.kernel.errors import InvalidError

QUIET = Scenario(cells=1_000, workers=5, batch_cells=20, collections=6, namespaces=3)
STORMY = replace(
    QUIET,
    dirty_rate=0.3,
    failure_rate=0.3,
    loss_rate=0.2,
    storm_rounds=2,
    storm_cells=60,
    collection_cap_cells=30,
    namespace_cap_cells=50,
    skew=1.0,
)


@pytest.mark.parametrize("seed", range(12))
def test_arrays_do_what_the_machine_does_to_objects(seed: int) -> None:
    scenario = replace(STORMY, cells=400, seed=seed)
    arrays, objects = Simulation(scenario), Simulation(scenario, ObjectCells)
    arrays.run()
    objects.run()
    arrays.check()
    objects.check()
    assert arrays.calls == objects.calls
    assert arrays.late == objects.late
    assert arrays.round == objects.round
    for state in State:
        assert (arrays.cells.are(state) == objects.cells.are(state)).all()
    assert (arrays.cells.outdated() == objects.cells.outdated()).all()
    assert (arrays.landed == objects.landed).all()


def test_a_quiet_run_calls_every_cell_once_and_shares_evenly() -> None:
    report = run_everfill(QUIET)
    assert (report.calls, report.late_results, report.outdated, report.failed) == (1_000, 0, 0, 0)
    assert report.rounds == 13  # twelve claims of 5 x 18, and the round that brings the last home
    assert report.fairness_index > 0.999


def test_everything_that_can_go_wrong_does_and_nothing_is_lost() -> None:
    report = run_everfill(STORMY)
    assert report.calls > 1_000
    assert report.late_results > 0
    assert report.outdated > 0
    assert report.in_flight_most[0] <= 30
    assert report.in_flight_most[1] <= 50
    assert report.edit_wait_rounds_p99 is not None


def test_a_small_edit_does_not_wait_behind_the_bulk() -> None:
    storm = replace(QUIET, cells=20_000, storm_rounds=10, storm_cells=20)
    report = run_everfill(storm)
    assert report.rounds > 200
    assert report.edit_wait_rounds_p99 == 0  # claimed in the round of the signal


def test_a_large_collection_does_not_hold_up_small_ones() -> None:
    """With sizes of 1, 1/4, 1/9 ... the small ones end early, not after the large one."""
    simulation = Simulation(replace(QUIET, cells=20_000, skew=2.0))
    ended: dict[int, int] = {}
    simulation.run()
    for number, lane in enumerate(simulation._bulk):
        assert lane.tail == lane.cursor
        ended[number] = lane.collection.served
    assert all(first > second for first, second in pairwise(ended.values()))
    assert simulation.fairness_index > 0.99  # while all had work, each namespace got as much


def test_a_claim_exceeds_no_cap_even_for_one_round() -> None:
    capped = replace(QUIET, collection_cap_cells=7, namespace_cap_cells=9)
    report = run_everfill(capped)
    assert report.in_flight_most[0] <= 7
    assert report.in_flight_most[1] <= 9


def test_the_check_finds_a_cell_that_shows_an_old_answer() -> None:
    simulation = Simulation(QUIET)
    simulation.run()
    simulation.wanted[17] += 1
    with pytest.raises(AssertionError, match="not the newest"):
        simulation.check()


def test_the_check_finds_a_cell_that_was_lost() -> None:
    simulation = Simulation(QUIET)
    simulation.run()
    simulation.cells.signal(np.array([3]))
    with pytest.raises(AssertionError, match="did not settle"):
        simulation.check()


def test_a_result_of_an_old_place_does_not_land() -> None:
    cells = ArrayCells(2)
    ids = np.array([0, 1])
    cells.signal(ids)
    old = cells.claim(ids)
    assert list(cells.expire(old)) == [0, 1]
    new = cells.claim(ids)
    nothing = np.zeros(2, np.bool_)
    assert cells.finalize(old, failed=nothing)[2] == 2
    assert cells.are(State.COMPUTING).all()
    assert cells.finalize(new, failed=nothing)[2] == 0
    assert cells.are(State.DONE).all()


def test_a_signal_while_computing_sends_the_cell_round_again() -> None:
    cells = ArrayCells(1)
    ids = np.array([0])
    cells.signal(ids)
    token = cells.claim(ids)
    assert not len(cells.signal(ids))  # it keeps its place: the call goes on
    again, _, _ = cells.finalize(token, failed=np.zeros(1, np.bool_))
    assert list(again) == [0]


def test_the_rules_are_the_machines_own_answers() -> None:
    rules = compile_rules()
    after = rules.code[Happening.SIGNAL, rules.untouched]
    assert STATES[rules.state[rules.untouched]] is Cell().state
    assert STATES[rules.state[after]] is State.QUEUED
    assert rules.place[Happening.SIGNAL, rules.untouched] == 1


def test_tokens_can_be_picked() -> None:
    tokens = Tokens(np.array([4, 5]), np.array([1, 2]), np.array([3, 4]))
    picked = tokens.pick(np.array([False, True]))
    assert (list(picked.ids), list(picked.place), list(picked.signal)) == ([5], [2], [4])


def test_the_orchestrator_keeps_two_events_a_cell_and_looks_at_every_future() -> None:
    report = run_orchestrator(replace(QUIET, cells=1_000))
    assert report.history_events == report.history_events_most == 2_000
    assert report.durable_bytes == 1_000 * (2 * 512 + 512)
    assert report.cpu_units == 2_000 + 11 * 1_000  # ten rounds of 100, and one that finds none


def test_everfills_largest_history_is_bounded() -> None:
    small, large = run_everfill(QUIET), run_everfill(replace(QUIET, cells=500_000, batch_cells=500))
    assert small.history_events_most < large.history_events_most <= 2_000
    assert large.application_heap_bytes == 5 * 450 * 512


def test_each_design_runs_in_a_process_of_its_own() -> None:
    report = simulate(Design.EVERFILL, QUIET)
    assert report.cells == 1_000
    assert report.measured_heap_bytes > 0


def test_the_comparison_is_one_record_with_a_line_a_design_and_size() -> None:
    record = compare(QUIET, [500, 1_000])
    assert [(line["design"], line["cells"]) for line in record.results] == [
        ("orchestrator", 500),
        ("everfill", 500),
        ("orchestrator", 1_000),
        ("everfill", 1_000),
    ]
    assert record.noise.spread >= 0
    assert record.machine.cores >= 1


@pytest.mark.parametrize(
    "change",
    [{"workers": 0}, {"dirty_rate": 1.0}, {"collection_cap_cells": 0}, {"collections": 2_000}],
)
def test_a_scenario_that_cannot_end_is_refused(change: dict[str, int]) -> None:
    with pytest.raises(InvalidError):
        replace(QUIET, **change)


def test_jains_index_is_one_for_even_and_one_over_n_for_one_that_takes_all() -> None:
    assert jain([5, 5, 5, 5], 4) == 1
    assert jain([8], 4) == 0.25


def test_a_percentile_is_a_time_that_was_measured() -> None:
    seconds = [n / 1_000 for n in range(1, 101)]
    assert percentile_ms(seconds, 0.5) == 51
    assert percentile_ms(seconds, 0.99) == 100
    assert percentile_ms([], 0.5) is None
