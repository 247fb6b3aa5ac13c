"""The naive workflows: one activity a cell, as people write them.

Neither is made slow on purpose. The activity does nothing but join two strings, so what is measured
is the cost of a cell's way through the orchestrator and back.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from temporalio import activity, workflow

__all__ = [
    "CellActivities",
    "CellCall",
    "GatheredFill",
    "GatheredStart",
    "WindowedFill",
    "WindowedStart",
    "word",
]

_TIMEOUT: Final = timedelta(seconds=60)


@dataclass(frozen=True, slots=True, kw_only=True)
class CellCall:
    """The input of one cell's activity."""

    prefix: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GatheredStart:
    """What a gathered fill is started with: the input column itself, as people pass it."""

    words: list[str]
    columns: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowedStart:
    """What a windowed fill is started or continued with.

    The words are made from their numbers, because a workflow cannot be given a long column; reading
    them from somewhere would cost more than is counted here.

    Attributes:
        rows: How many there are in all.
        word_chars: Length of each input.
        in_flight_max: Activities that may be pending at once.
        history_events_max: Continue as new beyond; None: never.
        row: The first that is not filled yet.
        right: How many cells of former runs have the right value.
    """

    rows: int
    word_chars: int
    in_flight_max: int
    history_events_max: int | None
    row: int = 0
    right: int = 0


class CellActivities:
    """The activity, and how often it was called."""

    def __init__(self) -> None:
        self.calls = 0

    @activity.defn(name="fill_cell")
    async def fill_cell(self, call: CellCall) -> str:
        """A trivial template."""
        self.calls += 1
        return call.prefix + call.text


def word(row: int, chars: int) -> str:
    """A row's input, padded to a length."""
    return f"w{row} ".ljust(chars, "x")


@workflow.defn(name="naive-gathered")
class GatheredFill:
    """Starts an activity for every cell at once and gathers the values."""

    @workflow.run
    async def run(self, start: GatheredStart) -> list[list[str]]:
        """The values of each column's cells, row by row."""
        return await asyncio.gather(*(_fill_row(text, start.columns) for text in start.words))


@workflow.defn(name="naive-windowed")
class WindowedFill:
    """Keeps a bounded number of activities in flight, and its history short where it may."""

    def __init__(self) -> None:
        self._in_flight = 0
        self._right = 0

    @workflow.run
    async def run(self, start: WindowedStart) -> int:
        """How many cells have the right value."""
        self._right = start.right
        row = start.row
        async with asyncio.TaskGroup() as filling:
            while row < start.rows and not _is_long(start.history_events_max):
                await workflow.wait_condition(lambda: self._in_flight < start.in_flight_max)
                self._in_flight += 1
                filling.create_task(self._fill(word(row, start.word_chars)))
                row += 1
        if row < start.rows:
            workflow.continue_as_new(replace(start, row=row, right=self._right))
        return self._right

    async def _fill(self, text: str) -> None:
        values = await _fill_row(text, 1)
        self._in_flight -= 1
        self._right += values == [f"1 {text}"]


def _is_long(events_max: int | None) -> bool:
    return events_max is not None and workflow.info().get_current_history_length() >= events_max


async def _fill_row(text: str, columns: int) -> list[str]:
    """Each column's value from the one before."""
    values: list[str] = []
    for number in range(1, columns + 1):
        text = await workflow.execute_activity_method(
            CellActivities.fill_cell,
            CellCall(prefix=f"{number} ", text=text),
            start_to_close_timeout=_TIMEOUT,
        )
        values.append(text)
    return values
