"""The cell machine: every transition of the queue side, pure, in one table.

`queue.sql` carries out exactly these transitions, set by set; a property test drives both with the
same events and demands the same outcome. No clock, no randomness, no I/O: the caller says whether
upstreams are settled, what a result was computed from, and whether a retry is due.

Source of the idea: a sans-IO state machine with one transition table, as in h11.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, TypeAlias

from everfill.kernel import limits

__all__ = [
    "TRANSITIONS",
    "Block",
    "Cell",
    "Claim",
    "Delete",
    "Event",
    "Expire",
    "Finalize",
    "GiveBack",
    "Lock",
    "Override",
    "Redefine",
    "Release",
    "Reset",
    "Result",
    "RetryDue",
    "Signal",
    "State",
    "Token",
    "Unlock",
    "step",
]


class State(StrEnum):
    """Where a computed cell is in its life."""

    IDLE = "idle"
    """Settled without an outcome: never computed, or waiting for an input that is not there."""
    BLOCKED = "blocked"
    """Wanted, but an upstream cell of the row is unsettled."""
    QUEUED = "queued"
    COMPUTING = "computing"
    RETRYING = "retrying"
    """Failed in passing; waits until it is due."""
    DONE = "done"
    """Settled with an answer: a value, or *not found*."""
    ERROR = "error"
    """Settled without an answer, for good."""


SETTLED: Final = frozenset({State.IDLE, State.DONE, State.ERROR})


class Result(StrEnum):
    """What a worker brings home."""

    ANSWER = "answer"
    """A value, *not found*, or the word that what the cell holds still is the answer."""
    TRANSIENT = "transient"
    PERMANENT = "permanent"
    WAITING = "waiting"
    """An input is not there; nothing was called."""
    PINNED = "pinned"
    """A person's value or a lock stands over it; nothing was called."""


UNPAID: Final = frozenset({Result.WAITING, Result.PINNED})
"""Nothing was computed, so a round that ends so does not count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """What a worker holds: it may land only where `place` is still the cell's."""

    place: int
    signal: int
    definition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One computed cell.

    Attributes:
        state: Where it is.
        settled_as: What it settled as last: what it says again should its wish be taken back.
        place: Number of its present place in the queue; grows with every place it gets.
        signal: Signals since it last settled.
        rounds: Times it was computed again in this burst because it was signalled meanwhile.
        tries: Transient failures in a row, lost workers among them.
        definition: The column's present definition version.
        outdated: Whether the answer it holds is known not to be the newest.
        overridden: Whether a person's value stands over it.
        locked: Whether it refuses any recompute.
    """

    state: State = State.IDLE
    settled_as: State = State.IDLE
    place: int = 0
    signal: int = 0
    rounds: int = 0
    tries: int = 0
    definition: int = 1
    outdated: bool = False
    overridden: bool = False
    locked: bool = False

    @property
    def settled(self) -> bool:
        """Whether nothing is going to change the cell by itself."""
        return self.state in SETTLED

    @property
    def token(self) -> Token:
        """What a claim of the cell in its present state gives a worker."""
        return Token(place=self.place, signal=self.signal, definition=self.definition)


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """Its inputs changed, or somebody wants it anew. `ready`: every upstream is settled."""

    ready: bool


@dataclass(frozen=True, slots=True)
class Block:
    """Its column reads other columns now, and one of them is unsettled."""


@dataclass(frozen=True, slots=True)
class Release:
    """The last unsettled upstream settled."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A worker takes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finalize:
    """A worker brings a result. `ready`: every upstream is settled, should it go round again."""

    token: Token
    result: Result
    ready: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Expire:
    """The lease ran out; nobody computes it any more."""

    ready: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryDue:
    """The delay after a transient failure is over."""

    ready: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveBack:
    """A worker that stops returns it as if it had never claimed it."""

    ready: bool = True


@dataclass(frozen=True, slots=True)
class Override:
    """A person typed a value over it."""


@dataclass(frozen=True, slots=True)
class Reset:
    """The typed value is dropped; a signal follows."""


@dataclass(frozen=True, slots=True)
class Lock:
    """It shall not be recomputed."""


@dataclass(frozen=True, slots=True)
class Unlock:
    """It may be recomputed again; a signal follows."""


@dataclass(frozen=True, slots=True)
class Redefine:
    """The column's definition changed."""


@dataclass(frozen=True, slots=True)
class Delete:
    """Its row or column is gone, or was retyped."""


Event: TypeAlias = (
    Signal
    | Block
    | Release
    | Claim
    | Finalize
    | Expire
    | GiveBack
    | RetryDue
    | Override
    | Reset
    | Lock
    | Unlock
    | Redefine
    | Delete
)
Transition: TypeAlias = "Callable[[Cell, Event], Cell]"


def step(cell: Cell, event: Event) -> Cell:
    """The cell after the event; an event that means nothing in its state leaves it as it is."""
    transition = TRANSITIONS.get((cell.state, type(event)))
    return transition(cell, event) if transition else cell


def _place(cell: Cell, *, ready: bool) -> Cell:
    """Queued at a new place, or blocked."""
    if not ready:
        return replace(cell, state=State.BLOCKED)
    return replace(cell, state=State.QUEUED, place=cell.place + 1)


def _settle(cell: Cell, state: State, *, outdated: bool) -> Cell:
    return replace(
        cell, state=state, settled_as=state, outdated=outdated, signal=0, rounds=0, tries=0
    )


def _withdraw(cell: Cell) -> Cell:
    """Its wish to be computed goes: an answer it holds is not the newest."""
    return _settle(cell, cell.settled_as, outdated=cell.settled_as is State.DONE)


def _signal_settled(cell: Cell, event: Event) -> Cell:
    assert isinstance(event, Signal)
    if cell.overridden or cell.locked:
        return replace(cell, outdated=cell.state is State.DONE)
    return _place(replace(cell, signal=1, rounds=0, tries=0), ready=event.ready)


def _signal_unsettled(cell: Cell, event: Event) -> Cell:
    assert isinstance(event, Signal)
    if cell.overridden or cell.locked:
        return cell
    fresh = replace(cell, signal=cell.signal + 1, tries=0)
    if cell.state is State.QUEUED and event.ready:
        return fresh
    return _place(fresh, ready=event.ready)


def _signal_computing(cell: Cell, event: Event) -> Cell:
    assert isinstance(event, Signal)
    if cell.overridden or cell.locked:
        return cell
    return replace(cell, signal=cell.signal + 1)


def _block(cell: Cell, event: Event) -> Cell:
    assert isinstance(event, Block)
    return replace(cell, state=State.BLOCKED)


def _block_computing(cell: Cell, event: Event) -> Cell:
    """It may have read that upstream too early."""
    assert isinstance(event, Block)
    return replace(cell, signal=cell.signal + 1)


def _release(cell: Cell, event: Event) -> Cell:
    assert isinstance(event, Release)
    return _place(cell, ready=True)


def _claim(cell: Cell, event: Event) -> Cell:
    assert isinstance(event, Claim)
    return replace(cell, state=State.COMPUTING)


def _finalize(cell: Cell, event: Event) -> Cell:
    assert isinstance(event, Finalize)
    if event.token.place != cell.place:
        return cell
    if event.token.definition != cell.definition:
        return _place(replace(cell, tries=0), ready=event.ready)
    dirty = event.token.signal != cell.signal
    free = event.result in UNPAID
    if dirty and (free or cell.rounds + 1 < limits.DIRTY_ROUNDS_MAX):
        rounds = cell.rounds + (not free)
        return _place(replace(cell, rounds=rounds, tries=0), ready=event.ready)
    return _land(cell, event.result, dirty=dirty)


def _land(cell: Cell, result: Result, *, dirty: bool) -> Cell:
    if result is Result.ANSWER:
        return _settle(cell, State.DONE, outdated=dirty)
    if result is Result.WAITING:
        return _settle(cell, State.IDLE, outdated=False)
    if result is Result.PINNED:
        return _withdraw(cell)
    if result is Result.TRANSIENT and not dirty and cell.tries + 1 < limits.TRIES_MAX:
        failed = replace(cell, settled_as=State.ERROR, outdated=False)
        return replace(failed, state=State.RETRYING, tries=cell.tries + 1)
    return _settle(cell, State.ERROR, outdated=False)


def _expire(cell: Cell, event: Event) -> Cell:
    assert isinstance(event, Expire)
    if cell.tries + 1 >= limits.LOST_TRIES_MAX:
        return _settle(cell, State.ERROR, outdated=False)
    return _place(replace(cell, tries=cell.tries + 1), ready=event.ready)


def _give_back(cell: Cell, event: Event) -> Cell:
    assert isinstance(event, GiveBack)
    return _place(cell, ready=event.ready)


def _retry(cell: Cell, event: Event) -> Cell:
    assert isinstance(event, RetryDue)
    return _place(cell, ready=event.ready)


def _override_idle(cell: Cell, event: Event) -> Cell:
    """Nobody computes it: its wish to be computed goes."""
    assert isinstance(event, Override)
    return replace(cell if cell.settled else _withdraw(cell), overridden=True)


def _override_computing(cell: Cell, event: Event) -> Cell:
    assert isinstance(event, Override)
    return replace(cell, overridden=True)


def _reset(cell: Cell, event: Event) -> Cell:
    assert isinstance(event, Reset)
    return replace(cell, overridden=False)


def _lock(cell: Cell, event: Event) -> Cell:
    assert isinstance(event, Lock)
    return replace(cell if cell.settled else _withdraw(cell), locked=True)


def _unlock(cell: Cell, event: Event) -> Cell:
    assert isinstance(event, Unlock)
    return replace(cell, locked=False)


def _redefine(cell: Cell, event: Event) -> Cell:
    assert isinstance(event, Redefine)
    outdated = cell.outdated or cell.settled_as is State.DONE
    return replace(cell, definition=cell.definition + 1, outdated=outdated)


def _delete(cell: Cell, event: Event) -> Cell:
    assert isinstance(event, Delete)
    return Cell(place=cell.place, definition=cell.definition)


def _table() -> dict[tuple[State, type[Event]], Transition]:
    table: dict[tuple[State, type[Event]], Transition] = {}
    for state in State:
        table[state, Reset] = _reset
        table[state, Lock] = _lock
        table[state, Unlock] = _unlock
        table[state, Redefine] = _redefine
        table[state, Delete] = _delete
        table[state, Signal] = _signal_settled if state in SETTLED else _signal_unsettled
        table[state, Override] = _override_idle
    table[State.COMPUTING, Signal] = _signal_computing
    table[State.COMPUTING, Block] = _block_computing
    table[State.COMPUTING, Override] = _override_computing
    table[State.BLOCKED, Release] = _release
    table[State.QUEUED, Block] = _block
    table[State.QUEUED, Claim] = _claim
    table[State.COMPUTING, Finalize] = _finalize
    table[State.COMPUTING, Expire] = _expire
    table[State.COMPUTING, GiveBack] = _give_back
    table[State.RETRYING, RetryDue] = _retry
    return table


TRANSITIONS: Final[Mapping[tuple[State, type[Event]], Transition]] = _table()
"""What happens to a cell in a state at an event; a pair that is absent changes nothing."""
