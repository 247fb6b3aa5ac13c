"""Lanes, caps and virtual time, as the claim statement of the queue has them.

A claim takes a range of places from the lanes that are furthest behind: interactive lanes first,
then the least virtual time, each within the room of its collection and its namespace.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from everfill.autofill.cell_worker import RESERVED_SHARE
from everfill.bench.simulator.cells import Ids
from everfill.kernel import limits

__all__ = ["Lane", "Room", "Scheduler", "Share"]


@dataclass(slots=True)
class Room:
    """What a collection or a namespace has in flight, and may have."""

    cap_cells: int
    weight: float = 1.0
    in_flight: int = 0
    in_flight_most: int = 0
    served: int = 0
    lanes_active: int = 0

    def left(self, *, interactive: bool) -> int:
        """Cells that may still be claimed; bulk work leaves a share to edits."""
        if interactive:
            return self.cap_cells - self.in_flight
        return max(1, int(self.cap_cells * limits.BULK_SHARE_OF_CAP)) - self.in_flight

    def take(self, cells: int) -> None:
        """Note a claim."""
        self.in_flight += cells
        assert self.in_flight <= self.cap_cells, "a cap was exceeded"
        self.in_flight_most = max(self.in_flight_most, self.in_flight)
        self.served += cells

    def give(self, cells: int) -> None:
        """Note that cells left the worker's hands."""
        self.in_flight -= cells
        assert self.in_flight >= 0, "more came home than went out"


@dataclass(slots=True)
class Lane:
    """A stream of places; those before `cursor` were claimed once."""

    collection: Room
    namespace: Room
    interactive: bool
    ids: Ids
    """The cell at each place."""
    since: Ids
    """The round in which each place was given; kept for interactive lanes alone."""
    tail: int = 0
    cursor: int = 0
    vtime: float = 0.0

    @property
    def depth(self) -> int:
        """Cells that wait in it."""
        return self.tail - self.cursor

    def append(self, ids: Ids, now: int) -> None:
        """Give places to cells, in order."""
        end = self.tail + len(ids)
        if end > len(self.ids):
            self.ids = _grown(self.ids, end)
            if self.interactive:
                self.since = _grown(self.since, end)
        self.ids[self.tail : end] = ids
        if self.interactive:
            self.since[self.tail : end] = now
        self.tail = end


def _grown(array: Ids, least: int) -> Ids:
    larger = np.empty(max(least, 2 * len(array)), array.dtype)
    larger[: len(array)] = array
    return larger


@dataclass(frozen=True, slots=True)
class Share:
    """A claim's part from one lane."""

    lane: Lane
    seq_from: int
    seq_to: int

    @property
    def ids(self) -> Ids:
        """The claimed cells."""
        return self.lane.ids[self.seq_from : self.seq_to]


@dataclass(slots=True)
class _Order:
    """Active lanes of one rank, by virtual time."""

    clock: float = 0.0
    heap: list[tuple[float, int, Lane]] = field(default_factory=list[tuple[float, int, Lane]])


class Scheduler:
    """Shares claims out among lanes."""

    def __init__(self) -> None:
        self._orders: Final = {True: _Order(), False: _Order()}
        self._number = 0
        self.ran_dry = False
        """Whether a bulk lane has run dry: from then on not all had work."""
        self.looked_at = 0
        """Lanes that claims looked at."""

    def enqueue(self, lane: Lane, ids: Ids, now: int) -> None:
        """Give cells places at a lane's tail; an empty lane comes back at the clock."""
        if not len(ids):
            return
        was_empty = not lane.depth
        lane.append(ids, now)
        if was_empty:
            self._activate(lane)

    def claim(self, slots: int) -> list[Share]:
        """One worker's claim, from at most a few lanes; each rank leaves the other some slots."""
        reserved = int(slots * RESERVED_SHARE) or int(slots > 1)
        shares: list[Share] = []
        free = slots
        for interactive in (True, False):
            if self._orders[interactive].heap:
                got = self._claim_from(self._orders[interactive], min(free, slots - reserved))
                free -= sum(share.seq_to - share.seq_from for share in got)
                shares += got
        return shares

    def _claim_from(self, order: _Order, cells_max: int) -> list[Share]:
        shares: list[Share] = []
        aside: list[tuple[float, int, Lane]] = []
        while cells_max and order.heap and len(shares) < limits.LANES_PER_CLAIM:
            vtime, number, lane = heapq.heappop(order.heap)
            self.looked_at += 1
            cells = min(lane.depth, cells_max, _room(lane))
            if cells <= 0:
                aside.append((vtime, number, lane))
                continue
            shares.append(self._take(order, lane, cells))
            cells_max -= cells
            if lane.depth:
                heapq.heappush(order.heap, (lane.vtime, number, lane))
            else:
                self._deactivate(lane)
        for entry in aside:
            heapq.heappush(order.heap, entry)
        return shares

    @staticmethod
    def _take(order: _Order, lane: Lane, cells: int) -> Share:
        share = Share(lane, lane.cursor, lane.cursor + cells)
        order.clock = max(order.clock, lane.vtime)
        lane.vtime += cells * lane.namespace.lanes_active / lane.namespace.weight
        lane.cursor += cells
        lane.collection.take(cells)
        lane.namespace.take(cells)
        return share

    def _activate(self, lane: Lane) -> None:
        order = self._orders[lane.interactive]
        lane.vtime = max(lane.vtime, order.clock)
        lane.namespace.lanes_active += 1
        self._number += 1
        heapq.heappush(order.heap, (lane.vtime, self._number, lane))

    def _deactivate(self, lane: Lane) -> None:
        lane.namespace.lanes_active -= 1
        self.ran_dry = self.ran_dry or not lane.interactive


def _room(lane: Lane) -> int:
    return min(
        lane.collection.left(interactive=lane.interactive),
        lane.namespace.left(interactive=lane.interactive),
    )
