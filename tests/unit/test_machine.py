"""The cell machine by itself."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everfill.autofill.machine import (
    SETTLED,
    TRANSITIONS,
    UNPAID,
    Block,
    Cell,
    Claim,
    Delete,
    Event,
    Expire,
    Finalize,
    GiveBack,
    Lock,
    Override,
    Redefine,
    Release,
    Reset,
    Result,
    RetryDue,
    Signal,
    State,
    Token,
    Unlock,
    step,
)
from everfill.kernel import limits

NEW = Cell()
EVENTS: list[Event] = [
    Signal(ready=True),
    Signal(ready=False),
    Block(),
    Release(),
    Claim(),
    Expire(),
    GiveBack(),
    RetryDue(),
    Override(),
    Reset(),
    Lock(),
    Unlock(),
    Redefine(),
    Delete(),
]


def after(cell: Cell, *events: Event) -> Cell:
    for event in events:
        cell = step(cell, event)
    return cell


def computing(cell: Cell = NEW) -> Cell:
    return after(cell, Signal(ready=True), Claim())


def landed(cell: Cell, result: Result = Result.ANSWER, *, token: Token | None = None) -> Cell:
    return step(cell, Finalize(token=token or cell.token, result=result))


def test_a_signalled_cell_is_queued_claimed_and_done() -> None:
    cell = landed(computing())
    assert (cell.state, cell.outdated, cell.signal) == (State.DONE, False, 0)


def test_a_cell_waits_for_its_upstreams_and_is_then_released() -> None:
    blocked = step(NEW, Signal(ready=False))
    assert blocked.state is State.BLOCKED
    assert step(blocked, Claim()) == blocked
    assert step(blocked, Release()).state is State.QUEUED


def test_a_signal_while_computing_only_counts_and_sends_it_round_again() -> None:
    cell = computing()
    dirty = step(cell, Signal(ready=True))
    assert (dirty.state, dirty.place, dirty.signal) == (State.COMPUTING, cell.place, 2)
    again = landed(dirty, token=cell.token)
    assert (again.state, again.rounds) == (State.QUEUED, 1)


def test_a_burst_of_signals_ends_as_outdated_after_three_calls() -> None:
    cell, calls = step(NEW, Signal(ready=True)), 0
    while not cell.settled:
        cell = step(cell, Claim())
        token = cell.token
        cell = landed(step(cell, Signal(ready=True)), token=token)
        calls += 1
    assert calls == limits.DIRTY_ROUNDS_MAX
    assert (cell.state, cell.outdated) == (State.DONE, True)


@pytest.mark.parametrize("result", sorted(UNPAID))
def test_a_round_that_called_nothing_does_not_count(result: Result) -> None:
    cell = computing()
    for _ in range(10):
        token = cell.token
        cell = landed(step(cell, Signal(ready=True)), result, token=token)
        assert (cell.state, cell.rounds) == (State.QUEUED, 0)
        cell = step(cell, Claim())


def test_a_signal_on_a_settled_cell_starts_a_new_burst() -> None:
    cell = replace(landed(computing()), rounds=0)
    assert step(cell, Signal(ready=True)).rounds == 0
    assert step(cell, Signal(ready=True)).signal == 1


def test_a_late_result_changes_nothing() -> None:
    cell = computing()
    taken_over = after(cell, Expire(), Claim())
    assert landed(taken_over, token=cell.token) == taken_over
    done = landed(taken_over)
    assert landed(done, token=cell.token) == done


def test_a_result_of_an_old_definition_goes_round_again_without_a_penalty() -> None:
    cell = computing()
    stale = landed(step(cell, Redefine()), token=cell.token)
    assert (stale.state, stale.rounds, stale.tries) == (State.QUEUED, 0, 0)


def test_a_changed_definition_outdates_an_answer_but_not_a_failure() -> None:
    assert step(landed(computing()), Redefine()).outdated
    assert not step(landed(computing(), Result.PERMANENT), Redefine()).outdated


def test_a_transient_failure_is_retried_so_often_and_then_is_for_good() -> None:
    cell = step(NEW, Signal(ready=True))
    for tries in range(1, limits.TRIES_MAX):
        cell = landed(step(cell, Claim()), Result.TRANSIENT)
        assert (cell.state, cell.tries) == (State.RETRYING, tries)
        cell = step(cell, RetryDue())
    assert landed(step(cell, Claim()), Result.TRANSIENT).state is State.ERROR


def test_a_cell_that_kills_every_worker_fails() -> None:
    cell, deaths = computing(), 0
    while not cell.settled:
        cell, deaths = after(cell, Expire(), Claim()), deaths + 1
    assert (cell.state, deaths) == (State.ERROR, limits.LOST_TRIES_MAX)


def test_a_returned_cell_is_as_if_it_had_never_been_claimed() -> None:
    cell = computing()
    back = step(cell, GiveBack())
    assert (back.state, back.signal, back.tries) == (State.QUEUED, cell.signal, cell.tries)
    assert landed(back, token=cell.token) == back


def test_an_override_withdraws_a_waiting_cell_and_leaves_a_running_call_alone() -> None:
    queued = step(landed(computing()), Signal(ready=True))
    typed = step(queued, Override())
    assert (typed.state, typed.outdated, typed.overridden) == (State.DONE, True, True)
    running = step(computing(), Override())
    assert running.state is State.COMPUTING
    assert landed(running).state is State.DONE


def test_a_withdrawn_cell_says_again_what_it_said_before() -> None:
    failed = landed(computing(), Result.PERMANENT)
    assert after(failed, Signal(ready=True), Lock()).state is State.ERROR
    assert after(NEW, Signal(ready=True), Lock()).state is State.IDLE


def test_a_locked_cell_refuses_signals_until_it_is_unlocked() -> None:
    locked = step(landed(computing()), Lock())
    told = step(locked, Signal(ready=True))
    assert (told.state, told.outdated) == (State.DONE, True)
    assert after(told, Unlock(), Signal(ready=True)).state is State.QUEUED


def test_a_lock_lets_no_running_call_land() -> None:
    cell = computing()
    locked = step(cell, Lock())
    assert locked.settled
    assert landed(locked, token=cell.token) == locked


def test_a_new_reference_to_an_unsettled_column_is_waited_for() -> None:
    assert step(step(NEW, Signal(ready=True)), Block()).state is State.BLOCKED
    cell = computing()
    assert landed(step(cell, Block()), token=cell.token).state is State.QUEUED


def test_a_deleted_cell_lets_nothing_land() -> None:
    cell = computing()
    gone = step(cell, Delete())
    assert landed(gone, token=cell.token) == gone


def test_every_pair_of_state_and_event_is_decided_in_one_table() -> None:
    assert {state for state, _ in TRANSITIONS} == set(State)
    assert {event for _, event in TRANSITIONS} == {*map(type, EVENTS), Finalize}


@given(st.lists(st.sampled_from([*EVENTS, *Result]), max_size=60))
def test_whatever_happens_a_cell_stays_whole(events: list[Event | Result]) -> None:
    cell = NEW
    for event in events:
        before = cell
        cell = landed(cell, event) if isinstance(event, Result) else step(cell, event)
        assert cell.place >= before.place
        assert 0 <= cell.rounds < limits.DIRTY_ROUNDS_MAX
        assert 0 <= cell.tries < limits.LOST_TRIES_MAX
        assert cell.settled_as in SETTLED
        assert cell.settled == (cell.signal == 0)
        if cell.state is State.COMPUTING and before.state is not State.COMPUTING:
            assert before.state is State.QUEUED, "only what is queued can be claimed"
        if cell.settled:
            assert cell.state is cell.settled_as


@given(st.lists(st.sampled_from(EVENTS), max_size=40))
def test_from_anywhere_a_cell_settles_when_workers_go_on(events: list[Event]) -> None:
    cell = after(NEW, *events)
    for _ in range(4):
        cell = landed(after(cell, Release(), RetryDue(), Claim()))
    assert cell.settled
