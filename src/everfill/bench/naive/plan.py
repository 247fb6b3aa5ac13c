"""What is tried: four shapes of the naive design, each at growing sizes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

__all__ = ["REPAIRED_ROWS", "ROWS", "NaivePlan", "Shape", "Size"]

ROWS: Final = (500, 1_000, 2_000, 2_001, 5_000, 10_000, 20_000, 50_000)
"""2,000 activities may be pending in one workflow: the size after it is tried as well."""
REPAIRED_ROWS: Final = (10_000, 20_000, 100_000)


class Shape(StrEnum):
    """How the naive design is written: first as it comes to mind, then as it is repaired."""

    GATHERED = "gathered"
    """Every activity of one column started at once, all awaited in one workflow."""
    CHAINED = "chained"
    """The same with two columns, the second of which reads the first."""
    WINDOWED = "windowed"
    """One column, a bounded number of activities in flight, still one history."""
    CONTINUED = "continued"
    """Windowed, and continued as new before the history is long."""

    @property
    def columns(self) -> int:
        """Activities a row."""
        return 2 if self is Shape.CHAINED else 1

    @property
    def is_repaired(self) -> bool:
        """Whether it is what people reach for once the first two broke."""
        return self in {Shape.WINDOWED, Shape.CONTINUED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """One workflow to run: a shape, and how many rows."""

    shape: Shape
    rows: int

    @property
    def cells(self) -> int:
        """Activities."""
        return self.rows * self.shape.columns


@dataclass(frozen=True, slots=True, kw_only=True)
class NaivePlan:
    """What to try, and with how much.

    Attributes:
        rows: Sizes of the gathered and the chained shape, growing.
        repaired_rows: Sizes of the windowed and the continued shape, growing.
        seconds_max: How long one size may take; larger ones of its shape are then left out.
        word_chars: Length of an input; a call's payload is some 30 bytes longer.
        in_flight_max: Activities pending at once in a repaired shape. Fewer are faster, as every
            update of a workflow costs the server more the more of them are pending: with 500 it
            was half as many cells a second as with 50.
        history_events_max: A continued shape starts a new history after as many.
        slots: Activities the worker runs at once. The client library's own default; with 1,000 the
            2,000 gathered cells took twice as long.
        pollers: Requests for activities, and for workflow tasks, it keeps open at the server. Its
            default as well.
    """

    rows: tuple[int, ...] = ROWS
    repaired_rows: tuple[int, ...] = REPAIRED_ROWS
    seconds_max: float = 120.0
    word_chars: int = 120
    in_flight_max: int = 50
    history_events_max: int = 10_000
    slots: int = 100
    pollers: int = 5

    def sizes(self) -> Iterator[Size]:
        """Every size, shape by shape."""
        for shape in Shape:
            for rows in self.repaired_rows if shape.is_repaired else self.rows:
                yield Size(shape=shape, rows=rows)
