"""The state diagram of a cell, drawn by asking the machine itself: `just reference` writes it.

Every event is put to a cell in every state, through `machine.step`; an arrow is what came out.
"""

from __future__ import annotations

from collections.abc import Iterator

from everfill.autofill.machine import (
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
    Release,
    Result,
    RetryDue,
    Signal,
    State,
    step,
)
from everfill.kernel import limits

__all__ = ["arrows", "mermaid", "state_page"]

PAGE = """\
# Transitions of a cell

{generated}

Every arrow is what `autofill/machine.py` answers to an event; events that change nothing in a state
are left out. What the states mean is in [cell states](../explanation/cell-states.md).

```mermaid
{diagram}
```

| from | event | to |
| --- | --- | --- |
{rows}
"""


def _events(cell: Cell) -> Iterator[tuple[str, Event]]:
    """Every event with its name, as it may come to a cell."""
    token, late = cell.token, Cell(place=cell.place, signal=cell.signal + 1).token
    yield "signal", Signal(ready=True)
    yield "signal, an upstream is unsettled", Signal(ready=False)
    yield "its upstreams settle", Release()
    yield "its references change, one is unsettled", Block()
    yield "claim", Claim()
    yield "an answer", Finalize(token=token, result=Result.ANSWER)
    yield "an input is missing", Finalize(token=token, result=Result.WAITING)
    yield "fails in passing", Finalize(token=token, result=Result.TRANSIENT)
    yield "fails for good", Finalize(token=token, result=Result.PERMANENT)
    yield "an answer, signalled meanwhile", Finalize(token=late, result=Result.ANSWER)
    yield "the lease runs out", Expire()
    yield "given back", GiveBack()
    yield "the retry is due", RetryDue()
    yield "typed over", Override()
    yield "locked", Lock()
    yield "deleted", Delete()


def arrows() -> list[tuple[State, str, State]]:
    """From, event, to; without the events that change no state."""
    found: list[tuple[State, str, State]] = []
    for state in State:
        cell = Cell(state=state, place=1, signal=1)
        for name, event in _events(cell):
            after = step(cell, event).state
            if after is not state:
                found.append((state, name, after))
    worn = Cell(state=State.COMPUTING, place=1, signal=2, rounds=limits.DIRTY_ROUNDS_MAX)
    late = Finalize(token=Cell(place=1, signal=1).token, result=Result.ANSWER)
    found.append((worn.state, "the same after the last round (outdated)", step(worn, late).state))
    return found


def mermaid() -> str:
    """The arrows as a Mermaid state diagram, one for each pair of states."""
    names: dict[tuple[State, State], list[str]] = {}
    for before, name, after in arrows():
        names.setdefault((before, after), []).append(name)
    lines = [
        f"    {before} --> {after}: {' / '.join(events)}"
        for (before, after), events in names.items()
    ]
    return "\n".join(["stateDiagram-v2", "    [*] --> idle", *lines])


def state_page(generated: str) -> str:
    """The reference page."""
    rows = "\n".join(f"| {before} | {name} | {after} |" for before, name, after in arrows())
    return PAGE.format(generated=generated, diagram=mermaid(), rows=rows)
