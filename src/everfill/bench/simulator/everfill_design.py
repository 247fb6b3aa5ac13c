"""Everfill's design, round by round: signal, claim, finalize, take back, in lanes with caps."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from typing import Final

import numpy as np
from numpy.typing import NDArray

from everfill.autofill.machine import State
from everfill.bench.simulator.cells import ArrayCells, CellStore, Ids, Tokens
from everfill.bench.simulator.scenario import Design, Report, Scenario
from everfill.bench.simulator.scheduler import Lane, Room, Scheduler, Share
from everfill.bench.statistics import jain

__all__ = ["Simulation", "run_everfill"]

_EVENTS_PER_DRAIN: Final = 6
"""One activity that drains completions: three events of its own, three of the task that asks."""
_FAIRNESS_MIN: Final = 0.95
_FAIR_ROUNDS_MIN: Final = 5  # of fewer, the last claims decide
_CELLS_PER_DRAIN: Final = 1_000
"""Completions that one drain takes while a collection is busy."""
_HISTORY_EVENTS_MAX: Final = 2_000
"""The workflow continues as new here."""


@dataclass(frozen=True, slots=True)
class _Held:
    """What one worker has in its hands."""

    shares: list[Share]
    tokens: Tokens
    versions: NDArray[np.uint16]


class Simulation:
    """One run.

    Args:
        scenario: What happens.
        make_cells: The store of cells: arrays, or the machine's own objects.
    """

    def __init__(
        self, scenario: Scenario, make_cells: Callable[[int], CellStore] = ArrayCells
    ) -> None:
        self.scenario = scenario
        self.cells = make_cells(scenario.cells)
        self.chance = np.random.default_rng(scenario.seed)
        self.scheduler = Scheduler()
        self.wanted = np.zeros(scenario.cells, np.uint16)
        """The newest signal of each cell, by number."""
        self.landed = np.zeros(scenario.cells, np.uint16)
        """The signal that the answer it holds was computed for."""
        self.round = self.calls = self.late = self.signals = self.claims = 0
        self._edges = _edges(scenario)
        self._namespaces, self._collections = _rooms(scenario)
        self._bulk, self._interactive = self._lanes()
        self._lost: defaultdict[int, list[_Held]] = defaultdict(list)
        self._retries: defaultdict[int, list[Ids]] = defaultdict(list)
        self._waits: list[Ids] = []
        self._in_flight_most = self._served_even = 0
        self.fairness_index = 1.0
        self._fair_rounds = 0

    def run(self) -> None:
        """From the first signal until every cell is settled."""
        for number, lane in enumerate(self._bulk):
            first, last = self._edges[number], self._edges[number + 1]
            for start in range(first, last, 1 << 16):
                ids = np.arange(start, min(start + (1 << 16), last))
                self._enqueue(lane, self._signal(ids))
        working: list[_Held] = []
        while True:
            working = self._play(working)
            if not (working or self._lost or self._retries or self._waiting()):
                return

    def _play(self, working: list[_Held]) -> list[_Held]:
        """One round: workers bring home what they hold, and claim anew."""
        self.round += 1
        working = self._lose(working)
        self._disturb(working)
        self._finalize(working)
        self._take_back()
        self._storm()
        return self._claim()

    def _waiting(self) -> bool:
        return any(lane.depth for lane in (*self._bulk, *self._interactive))

    def _signal(self, ids: Ids) -> Ids:
        """Signal cells; returns those that need a place."""
        self.wanted[ids] += 1
        self.signals += len(ids)
        return self.cells.signal(ids)

    def _claim(self) -> list[_Held]:
        """Every worker claims; the cells of all of them take one step together."""
        batch = self.scenario.batch_cells
        claimed = [
            shares for _ in range(self.scenario.workers) if (shares := self.scheduler.claim(batch))
        ]
        if not claimed:
            return []
        self.claims += len(claimed)
        shares = list(chain.from_iterable(claimed))
        ids = np.concatenate([share.ids for share in shares])
        self.calls += len(ids)
        self._in_flight_most = max(self._in_flight_most, len(ids))
        self._note_waits(shares)
        self._note_fairness()
        tokens = self.cells.claim(ids)
        if not self.scenario.loss_rate:  # nobody will ask which worker holds what
            return [_Held(shares, tokens, self.wanted[ids])]
        return self._split(claimed, tokens)

    def _split(self, claimed: list[list[Share]], tokens: Tokens) -> list[_Held]:
        """What each worker holds, where one of them may be lost."""
        held: list[_Held] = []
        start = 0
        for shares in claimed:
            end = start + sum(share.seq_to - share.seq_from for share in shares)
            part = slice(start, end)
            ids = tokens.ids[part]
            own = Tokens(ids, tokens.place[part], tokens.signal[part])
            held.append(_Held(shares, own, self.wanted[ids]))
            start = end
        return held

    def _finalize(self, working: list[_Held]) -> None:
        for held in working:
            failed = self._failed(len(held.tokens.ids))
            self._land(held, failed)
            self._leave(held)

    def _failed(self, count: int) -> NDArray[np.bool_]:
        if not self.scenario.failure_rate:
            return np.zeros(count, np.bool_)
        return self.chance.random(count) < self.scenario.failure_rate

    def _land(self, held: _Held, failed: NDArray[np.bool_]) -> None:
        again, retrying, late = self.cells.finalize(held.tokens, failed=failed)
        self.late += late
        if not (len(again) or len(retrying) or late):
            self.landed[held.tokens.ids] = held.versions
            return
        self._requeue(again)
        if len(retrying):
            self._retries[self.round + self.scenario.retry_rounds].append(retrying)
        done = self.cells.are(State.DONE, held.tokens.ids)
        self.landed[held.tokens.ids[done]] = held.versions[done]

    def _lose(self, working: list[_Held]) -> list[_Held]:
        """Some workers are gone; nobody knows before their leases run out."""
        if not self.scenario.loss_rate:
            return working
        lost = self.chance.random(len(working)) < self.scenario.loss_rate
        due = self.round + self.scenario.lease_rounds
        gone = [held for held, is_lost in zip(working, lost, strict=True) if is_lost]
        if gone:
            self._lost[due] += gone
        return [held for held, is_lost in zip(working, lost, strict=True) if not is_lost]

    def _take_back(self) -> None:
        """Leases that ran out; then the lost workers turn up after all, and must not land."""
        for held in self._lost.pop(self.round, []):
            self._requeue(self.cells.expire(held.tokens))
            self._leave(held)
            nothing = np.zeros(len(held.tokens.ids), np.bool_)
            again, retrying, late = self.cells.finalize(held.tokens, failed=nothing)
            assert late == len(held.tokens.ids), "a result landed after its lease"
            assert not len(again) + len(retrying), "a late result moved a cell"
            self.late += late
        for ids in self._retries.pop(self.round, []):
            self._requeue(self.cells.retry(ids))

    def _disturb(self, working: list[_Held]) -> None:
        """Signals for cells that are computing."""
        if self.scenario.dirty_rate:
            for held in working:
                ids = held.tokens.ids
                hit = ids[self.chance.random(len(ids)) < self.scenario.dirty_rate]
                self._requeue(self._signal(hit))

    def _storm(self) -> None:
        """Signals for any cells, as edits bring them, while bulk work goes on."""
        every = self.scenario.storm_rounds
        if not every or self.round % every or not any(lane.depth for lane in self._bulk):
            return
        chosen = self.chance.integers(0, self.scenario.cells, self.scenario.storm_cells)
        self._requeue(self._signal(np.unique(chosen)))

    def _requeue(self, ids: Ids) -> None:
        """Give cells of any collections a place in their interactive lanes."""
        if not len(ids):
            return
        owner = np.searchsorted(self._edges, ids, side="right") - 1
        for number in sorted({int(number) for number in owner}):
            self._enqueue(self._interactive[number], ids[owner == number])

    def _enqueue(self, lane: Lane, ids: Ids) -> None:
        self.scheduler.enqueue(lane, ids, self.round)

    @staticmethod
    def _leave(held: _Held) -> None:
        for share in held.shares:
            cells = share.seq_to - share.seq_from
            share.lane.collection.give(cells)
            share.lane.namespace.give(cells)

    def _note_waits(self, shares: list[Share]) -> None:
        for share in shares:
            if share.lane.interactive:
                since = share.lane.since[share.seq_from : share.seq_to]
                self._waits.append(self.round - since)

    def _note_fairness(self) -> None:
        """Jain's index over namespaces, as long as every lane has work."""
        if not self.scheduler.ran_dry:
            served = [room.served / room.weight for room in self._namespaces]
            self.fairness_index = jain(served, len(served))
            self._fair_rounds += 1

    def _lanes(self) -> tuple[list[Lane], list[Lane]]:
        def lane(number: int, cells: int, *, interactive: bool) -> Lane:
            namespace = self._namespaces[number % self.scenario.namespaces]
            room = self._collections[number]
            since = np.empty(cells if interactive else 0, np.int64)
            return Lane(room, namespace, interactive, np.empty(cells, np.int64), since)

        sizes = np.diff(self._edges)
        bulk = [lane(n, int(size), interactive=False) for n, size in enumerate(sizes)]
        return bulk, [lane(n, 1, interactive=True) for n in range(len(sizes))]

    def check(self) -> None:
        """Every cell ended once, on its newest signal, and nothing is left in hand."""
        done, failed = self.cells.are(State.DONE), self.cells.are(State.ERROR)
        assert bool((done | failed).all()), "a cell did not settle"
        newest = self.landed == self.wanted
        honest = newest | failed | self.cells.outdated()
        assert bool(honest.all()), "a cell shows an answer that is not the newest"
        for room in (*self._collections, *self._namespaces):
            assert room.in_flight == 0, "a claim leaked"
        caps = (self.scenario.collection_cap_cells, self.scenario.namespace_cap_cells)
        if caps == (None, None) and self._fair_rounds >= _FAIR_ROUNDS_MIN:
            told = f"the namespaces were served unevenly: {self.fairness_index:.3f}"
            assert self.fairness_index >= _FAIRNESS_MIN, told

    def report(self, elapsed_seconds: float) -> Report:
        """The figures of a run that is over."""
        scenario = self.scenario
        drains = -(-self.calls // _CELLS_PER_DRAIN)
        entries = scenario.cells * (scenario.entry_bytes + scenario.index_bytes)
        operations = 2 * self.claims
        events = drains * _EVENTS_PER_DRAIN
        waits = np.concatenate(self._waits) if self._waits else None
        per_collection = -(-events // scenario.collections)
        return Report(
            design=Design.EVERFILL,
            cells=scenario.cells,
            elapsed_seconds=elapsed_seconds,
            cells_per_second=scenario.cells / elapsed_seconds,
            rounds=self.round,
            calls=self.calls,
            late_results=self.late,
            outdated=int(np.count_nonzero(self.cells.outdated())),
            failed=int(np.count_nonzero(self.cells.are(State.ERROR))),
            cpu_units=self.signals + 3 * self.calls + self.scheduler.looked_at + events,
            application_heap_bytes=self._in_flight_most * scenario.payload_bytes,
            durable_bytes=entries
            + operations * scenario.payload_bytes
            + events * scenario.event_bytes,
            history_events=events,
            history_events_most=min(per_collection, _HISTORY_EVENTS_MAX),
            measured_heap_bytes=0,
            fairness_index=self.fairness_index,
            in_flight_most=(
                max(room.in_flight_most for room in self._collections),
                max(room.in_flight_most for room in self._namespaces),
            ),
            edit_wait_rounds_p99=None if waits is None else float(np.percentile(waits, 99)),
        )


def run_everfill(scenario: Scenario) -> Report:
    """Simulate, check every invariant, report."""
    simulation = Simulation(scenario)
    started = time.perf_counter()
    simulation.run()
    elapsed_seconds = time.perf_counter() - started
    simulation.check()
    return simulation.report(elapsed_seconds)


def _edges(scenario: Scenario) -> NDArray[np.int64]:
    """Where each collection's cells begin; one more at the end. Every collection has a cell."""
    shares = 1 / np.arange(1, scenario.collections + 1, dtype=np.float64) ** scenario.skew
    spare = scenario.cells - scenario.collections
    sizes = 1 + np.floor(spare * shares / shares.sum()).astype(np.int64)
    sizes[0] += scenario.cells - sizes.sum()
    return np.concatenate([[0], np.cumsum(sizes)])


def _rooms(scenario: Scenario) -> tuple[list[Room], list[Room]]:
    """Namespaces and collections, with their caps."""
    unbounded = 2 * scenario.slots * (1 + scenario.lease_rounds)
    of_namespace = scenario.namespace_cap_cells or unbounded
    of_collection = scenario.collection_cap_cells or unbounded
    return (
        [Room(of_namespace) for _ in range(scenario.namespaces)],
        [Room(of_collection) for _ in range(scenario.collections)],
    )
