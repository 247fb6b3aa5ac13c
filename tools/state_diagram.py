"""The transitions of a cell, drawn by asking the machine itself: `just reference` writes them.

The machine's table holds functions, not states. So each of its transitions is put to cells and
events that stand for every way through it; an arrow is what came out.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import get_args

from everfill.autofill.machine import (
    TRANSITIONS,
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

__all__ = ["arrows", "mermaid", "state_page", "with_diagram"]

PAGE = """\
# Transitions of a cell

{generated}

Every row is what `autofill/machine.py` answers to an event; events that change nothing in a state
are left out. One event may lead to several states: what decides is in the words of the event, or in
what the cell settled as before. What the states mean, and the same as a diagram, is in
[cell states](../explanation/cell-states.md).

| from | event | to |
| --- | --- | --- |
{rows}
"""
BEGIN = (
    "<!-- Written by tools/state_diagram.py from the machine's table, up to the next mark. -->\n"
)
END = "<!-- End of what is written by the tool. -->\n"

SETTLED = (State.DONE, State.ERROR, State.IDLE)
PLACE, SIGNALS, DEFINITION = 1, 2, 2
UNREADY = ", an upstream is unsettled"
TOO_OFTEN = ", too often"
MEANWHILE = ", signalled meanwhile"
NAMES: dict[type[Event], str] = {
    Block: "its references change, one is unsettled",
    Claim: "claim",
    Delete: "deleted",
    Expire: "the lease runs out",
    GiveBack: "given back",
    Lock: "locked",
    Override: "typed over",
    Redefine: "redefined",
    Release: "its upstreams settle",
    Reset: "reset",
    RetryDue: "the retry is due",
    Signal: "signal",
    Unlock: "unlocked",
}
RESULTS = {
    Result.ANSWER: "an answer",
    Result.TRANSIENT: "fails in passing",
    Result.PERMANENT: "fails for good",
    Result.WAITING: "an input is missing",
    Result.PINNED: "found typed over or locked",
}


def _cells(state: State) -> Iterator[tuple[str, Cell]]:
    """A cell in a state, in every way that a transition looks at; worn ones have a word for it."""
    base = Cell(state=state, place=PLACE, signal=SIGNALS, definition=DEFINITION)
    for settled_as in (state,) if state in SETTLED else SETTLED:
        yield "", _like(base, settled_as=settled_as)
        if state is State.COMPUTING:
            yield ", the last try", _like(base, settled_as=settled_as, tries=limits.TRIES_MAX - 1)
            lost = _like(base, settled_as=settled_as, tries=limits.LOST_TRIES_MAX - 1)
            yield TOO_OFTEN, lost
            worn = _like(base, settled_as=settled_as, rounds=limits.DIRTY_ROUNDS_MAX - 1)
            yield ", the last round", worn


def _like(cell: Cell, *, settled_as: State, tries: int = 0, rounds: int = 0) -> Cell:
    return Cell(
        state=cell.state,
        settled_as=settled_as,
        place=cell.place,
        signal=cell.signal,
        definition=cell.definition,
        tries=tries,
        rounds=rounds,
    )


def _events(kind: type[Event]) -> Iterator[tuple[str, Event]]:
    """Every event of a kind, with its name."""
    if kind is Finalize:
        yield from _results()
    elif kind in {Signal, Expire, GiveBack, RetryDue}:
        yield NAMES[kind], kind(ready=True)
        yield NAMES[kind] + UNREADY, kind(ready=False)
    else:
        yield NAMES[kind], kind()


def _results() -> Iterator[tuple[str, Event]]:
    for result, ready in product(Result, (True, False)):
        after = "" if ready else UNREADY
        fresh = Token(place=PLACE, signal=SIGNALS, definition=DEFINITION)
        early = Token(place=PLACE, signal=SIGNALS - 1, definition=DEFINITION)
        other = Token(place=PLACE, signal=SIGNALS, definition=DEFINITION - 1)
        if ready:
            yield RESULTS[result], Finalize(token=fresh, result=result)
        signalled = f"{RESULTS[result]}{MEANWHILE}{after}"
        yield signalled, Finalize(token=early, result=result, ready=ready)
        yield f"redefined meanwhile{after}", Finalize(token=other, result=result, ready=ready)


def arrows() -> list[tuple[State, str, State]]:
    """From, event, to; without the events that change no state, each once."""
    found: dict[tuple[State, str, State], None] = {}
    for state, kind in product(State, get_args(Event)):
        if (state, kind) not in TRANSITIONS:
            continue
        for name, event in _events(kind):
            plain = {step(cell, event).state for word, cell in _cells(state) if not word}
            for word, cell in _cells(state):
                after = step(cell, event).state
                if word and (after in plain or (word == TOO_OFTEN) != (kind is Expire)):
                    continue  # its wear makes no difference
                if after is not state:
                    found[state, name + word, after] = None
    return list(found)


def mermaid() -> str:
    """The arrows as a Mermaid state diagram, one for each pair of states.

    Deletion, which leads from everywhere to idle, and what only repeats another arrow with an
    upstream unsettled are left out.
    """
    names: dict[tuple[State, State], list[str]] = {}
    for before, name, after in arrows():
        if name != NAMES[Delete]:
            short = name.replace(UNREADY, "")
            if MEANWHILE in short:
                short = "a result" + short[short.index(MEANWHILE) :]
            shown = names.setdefault((before, after), [])
            if short not in shown:
                shown.append(short)
    lines = [
        f"    {before} --> {after}: {' / '.join(events)}"
        for (before, after), events in names.items()
    ]
    return "\n".join(["stateDiagram-v2", "    [*] --> idle", *lines])


def state_page(generated: str) -> str:
    """The reference page: the table."""
    rows = "\n".join(f"| {before} | {name} | {after} |" for before, name, after in arrows())
    return PAGE.format(generated=generated, rows=rows)


def with_diagram(page: str) -> str:
    """A page with the diagram between its two marks as the machine has it now."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError("The page has lost a mark of the diagram.")
    return f"{before}{BEGIN}\n```mermaid\n{mermaid()}\n```\n\n{END}{after}"
