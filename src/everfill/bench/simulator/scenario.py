"""What is simulated, and what is reported of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from everfill.kernel.errors import InvalidError

__all__ = ["Design", "Report", "Scenario"]


class Design(StrEnum):
    """The designs that are compared."""

    ORCHESTRATOR = "orchestrator"
    """One durable activity a cell, all futures in one selector."""
    EVERFILL = "everfill"
    """A queue with lanes and caps; a workflow with a bounded history."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A load and the sizes of what it moves. Time passes in rounds: a call takes one round.

    Attributes:
        cells: Cells to fill, all queued at the start.
        workers: Workers that claim once a round.
        batch_cells: Slots of a worker; a tenth of them is kept for edits.
        collections: Collections the cells belong to.
        namespaces: Namespaces the collections belong to, in turn.
        skew: Exponent of the sizes of collections: 0: equal, 1: the n-th has 1/n of the first.
        collection_cap_cells: Most cells in flight of a collection; None: what all workers can hold.
        namespace_cap_cells: The same of a namespace.
        dirty_rate: Share of the cells in flight that are signalled again in a round.
        failure_rate: Share of the calls that fail in passing.
        loss_rate: Share of the workers that are lost in a round, with what they hold.
        lease_rounds: Rounds until what a lost worker held is taken back.
        retry_rounds: Rounds until a call that failed in passing is tried again.
        storm_rounds: A storm of signals comes every so many rounds; 0: never.
        storm_cells: Cells that one storm signals.
        events_per_cell: History events of one activity.
        event_bytes: Bytes of one history event.
        payload_bytes: Bytes that one operation (a claim, a result) carries.
        entry_bytes: Bytes of a queued cell's entry.
        index_bytes: Bytes of that entry in indexes.
        seed: Of every random choice.
    """

    cells: int
    workers: int = 200
    batch_cells: int = 50
    collections: int = 16
    namespaces: int = 4
    skew: float = 0.0
    collection_cap_cells: int | None = None
    namespace_cap_cells: int | None = None
    dirty_rate: float = 0.0
    failure_rate: float = 0.0
    loss_rate: float = 0.0
    lease_rounds: int = 5
    retry_rounds: int = 3
    storm_rounds: int = 0
    storm_cells: int = 1_000
    events_per_cell: int = 2
    event_bytes: int = 512
    payload_bytes: int = 512
    entry_bytes: int = 192
    index_bytes: int = 96
    seed: int = 1

    def __post_init__(self) -> None:
        whole = ("cells", "workers", "batch_cells", "collections", "namespaces")
        rounds = ("lease_rounds", "retry_rounds")
        for name in (*whole, *rounds):
            if getattr(self, name) < 1:
                raise InvalidError(
                    "scenario_invalid", f"{name} is {getattr(self, name)}; it must be at least 1."
                )
        for name in ("dirty_rate", "failure_rate", "loss_rate"):
            if not 0 <= getattr(self, name) < 1:
                raise InvalidError(
                    "scenario_invalid", f"{name} is {getattr(self, name)}; it is a share, below 1."
                )
        for name in ("collection_cap_cells", "namespace_cap_cells"):
            cap = getattr(self, name)
            if cap is not None and cap < 1:
                raise InvalidError(
                    "scenario_invalid", f"{name} is {cap}; with no room, nothing would ever start."
                )
        if self.collections > self.cells:
            raise InvalidError(
                "scenario_invalid",
                f"{self.cells} cells cannot fill {self.collections} collections.",
                hint="Ask for at least one cell a collection.",
            )

    @property
    def slots(self) -> int:
        """Cells that all workers together can have in flight."""
        return self.workers * self.batch_cells


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What one run of one design took. Modelled figures follow from the counts and the sizes.

    Attributes:
        design: Which.
        cells: Cells filled.
        elapsed_seconds: Of the simulation itself, on one core.
        cells_per_second: Cells a second of the simulation.
        rounds: Rounds until the last cell was settled.
        calls: Calls made; more than `cells` where signals or losses made cells go round again.
        late_results: Results refused because their place was no longer the cell's.
        outdated: Cells that ended as *outdated*, at the cap on rounds.
        failed: Cells that ended as *failed*.
        cpu_units: Modelled: records read or written (events, futures polled, entries, cells).
        application_heap_bytes: Modelled: what processes must hold at the worst moment.
        durable_bytes: Modelled: what was written to disk.
        history_events: Modelled: of all workflows.
        history_events_most: Modelled: in the largest single history.
        measured_heap_bytes: Measured: growth of the resident memory of the simulating process.
        fairness_index: Jain's index over namespaces, of cells served while all had work; 1 is even.
            None: the design has no shares.
        in_flight_most: Most cells in flight of one collection and of one namespace.
        edit_wait_rounds_p99: Rounds that a signalled, settled cell waited for its claim; None:
            nothing was signalled.
    """

    design: Design
    cells: int
    elapsed_seconds: float
    cells_per_second: float
    rounds: int
    calls: int
    late_results: int
    outdated: int
    failed: int
    cpu_units: int
    application_heap_bytes: int
    durable_bytes: int
    history_events: int
    history_events_most: int
    measured_heap_bytes: int
    fairness_index: float | None
    in_flight_most: tuple[int, int]
    edit_wait_rounds_p99: float | None
