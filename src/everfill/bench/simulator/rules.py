"""The cell machine as tables: what `step` does to every kind of cell at every event.

The machine's own `step` is asked once for each state of a cell and each event of the simulation;
its answers are kept as arrays, so that a million cells take one step in one indexed assignment. No
rule is written down here: change the machine, and the tables change.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from everfill.autofill.machine import (
    SETTLED,
    Cell,
    Claim,
    Event,
    Expire,
    Finalize,
    Result,
    RetryDue,
    Signal,
    State,
    Token,
    step,
)
from everfill.kernel import limits

__all__ = ["STATES", "Codes", "Happening", "Rules", "compile_rules", "event_of"]

Codes: TypeAlias = "NDArray[np.uint16]"

STATES: Final = tuple(State)
"""The states in the order of their numbers in `Rules.state`."""

_SEEN: Final = 1  # signals a worker has seen, in the cells that the machine is asked about


class Happening(IntEnum):
    """An event of the simulation; `DIRTY`: a signal came after the claim."""

    SIGNAL = 0
    CLAIM = 1
    ANSWER = 2
    ANSWER_DIRTY = 3
    TRANSIENT = 4
    TRANSIENT_DIRTY = 5
    EXPIRE = 6
    RETRY_DUE = 7


_RESULTS: Final = {
    Happening.ANSWER: Result.ANSWER,
    Happening.ANSWER_DIRTY: Result.ANSWER,
    Happening.TRANSIENT: Result.TRANSIENT,
    Happening.TRANSIENT_DIRTY: Result.TRANSIENT,
}
_DIRTY: Final = frozenset({Happening.ANSWER_DIRTY, Happening.TRANSIENT_DIRTY})


def event_of(happening: Happening, token: Token) -> Event:
    """The machine's event; every upstream is settled."""
    match happening:
        case Happening.SIGNAL:
            return Signal(ready=True)
        case Happening.CLAIM:
            return Claim()
        case Happening.EXPIRE:
            return Expire()
        case Happening.RETRY_DUE:
            return RetryDue()
        case _:
            return Finalize(token=token, result=_RESULTS[happening])


def _kinds() -> list[Cell]:
    """One cell for each combination of what the machine looks at."""
    combinations = itertools.product(
        State,
        sorted(SETTLED),
        range(limits.DIRTY_ROUNDS_MAX),
        range(limits.LOST_TRIES_MAX),
        (False, True),
    )
    return [
        Cell(
            state=state,
            settled_as=settled_as,
            rounds=rounds,
            tries=tries,
            outdated=outdated,
            signal=0 if state in SETTLED else _SEEN + 1,
        )
        for state, settled_as, rounds, tries, outdated in combinations
    ]


def _key(cell: Cell) -> tuple[State, State, int, int, bool]:
    return cell.state, cell.settled_as, cell.rounds, cell.tries, cell.outdated


@dataclass(frozen=True, slots=True)
class Rules:
    """What an event does, by [event, code], and what a code stands for, by [code].

    Attributes:
        code: The cell's new code.
        place: How much its place grows, 0 or 1.
        signal_factor: Its count of signals is first multiplied by this, 0 or 1,
        signal_growth: then grows by this, 0 or 1.
        state: Number of the state in `STATES`.
        outdated: Whether the answer is known not to be the newest.
        untouched: The one code of a cell that was never asked for.
    """

    code: Codes
    place: NDArray[np.uint8]
    signal_factor: NDArray[np.uint8]
    signal_growth: NDArray[np.uint8]
    state: NDArray[np.uint8]
    outdated: NDArray[np.bool_]
    untouched: int


@cache
def compile_rules() -> Rules:
    """Ask the machine everything, once a process."""
    kinds = _kinds()
    codes = {_key(cell): code for code, cell in enumerate(kinds)}
    shape = (len(Happening), len(kinds))
    rules = Rules(
        code=np.zeros(shape, np.uint16),
        place=np.zeros(shape, np.uint8),
        signal_factor=np.zeros(shape, np.uint8),
        signal_growth=np.zeros(shape, np.uint8),
        state=np.array([STATES.index(cell.state) for cell in kinds], np.uint8),
        outdated=np.array([cell.outdated for cell in kinds], np.bool_),
        untouched=codes[_key(Cell())],
    )
    for happening, (code, cell) in itertools.product(Happening, enumerate(kinds)):
        after = _after(cell, happening)
        assert after.signal in {0, cell.signal, cell.signal + 1}, "a count the arrays cannot keep"
        rules.code[happening, code] = codes[_key(after)]
        rules.place[happening, code] = after.place - cell.place
        rules.signal_factor[happening, code] = after.signal != 0
        rules.signal_growth[happening, code] = after.signal == cell.signal + 1
    return rules


def _after(cell: Cell, happening: Happening) -> Cell:
    seen = cell.signal - 1 if happening in _DIRTY else cell.signal
    token = Token(place=cell.place, signal=seen, definition=cell.definition)
    return step(cell, event_of(happening, token))
