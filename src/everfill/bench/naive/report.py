"""What came out of the naive design, size by size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from everfill.bench.naive.plan import NaivePlan, Shape

__all__ = ["NaiveReport", "Outcome", "Trial"]


class Outcome(StrEnum):
    """How a size ended."""

    COMPLETED = "completed"
    BROKE = "broke"
    OUT_OF_TIME = "out of time"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One size of one shape.

    Attributes:
        shape: How the workflow is written.
        workflow_id: Of its workflow, for a look at the server's own words.
        rows: Asked for.
        cells: Asked for: one activity each.
        outcome: How it ended; completed means that every value is right.
        error: In the server's words where it broke.
        cells_done: Activities that ran, at most as many as were asked for.
        seconds: From the call that starts the workflow until it ended or was given up.
        cells_per_second: `cells_done` over `seconds`.
        runs: Histories it took, each continued from the one before.
        history_events: Of all runs together.
        history_bytes: Of all runs together.
        failed_tasks: Workflow tasks that failed on the way, by the server's words; each was tried
            again, and the first failure of a row of them is what the history has.
        worker_cpu_seconds: Spent by this process, in which the worker is.
        worker_memory_bytes: Most resident bytes of this process meanwhile.
        server_cpu_seconds: Spent by the server; None where it is on another machine.
        server_memory_bytes: Most resident bytes of the server meanwhile; None likewise.
        database_bytes: By how much the server's database file grew; None where it is not known.
    """

    shape: Shape
    workflow_id: str
    rows: int
    cells: int
    outcome: Outcome
    error: str | None
    cells_done: int
    seconds: float
    cells_per_second: float
    runs: int
    history_events: int
    history_bytes: int
    failed_tasks: Mapping[str, int]
    worker_cpu_seconds: float
    worker_memory_bytes: int
    server_cpu_seconds: float | None
    server_memory_bytes: int | None
    database_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NaiveReport:
    """Every size that was tried.

    Attributes:
        plan: What was asked for.
        trials: In the order in which they ran.
    """

    plan: NaivePlan
    trials: Sequence[Trial]

    def first_breaks(self) -> Mapping[Shape, Trial]:
        """The first size of each shape that broke; shapes that never did are left out."""
        broken = [trial for trial in self.trials if trial.outcome is Outcome.BROKE]
        return {trial.shape: trial for trial in reversed(broken)}
