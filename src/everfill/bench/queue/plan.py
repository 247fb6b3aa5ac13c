"""What the queue benchmark does, and what it finds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from everfill.kernel.errors import InvalidError

__all__ = ["Measured", "Plan"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to measure.

    Attributes:
        depths: Cells queued when the drain begins.
        drain: Most cells that are drained, so that the rate is one at that depth.
        batches: Most cells of one claim.
        workers: Worker processes; several numbers of them are measured in turn.
        collections: Collections that share the cells, evenly.
        namespaces: Namespaces that own the collections, in turn.
        payload_bytes: Bytes of an answer.
        rounds: How often everything is measured, subjects in turn.
        peers_python: A Python that has the other queues installed; None: Everfill alone.
        peers: Which of them.
        peers_depth_max: Deepest queue the others are measured at.
        seconds_max: Longest drain of another queue.
    """

    depths: Sequence[int]
    drain: int = 200_000
    batches: Sequence[int] = (1_000,)
    workers: Sequence[int] = (2,)
    collections: int = 16
    namespaces: int = 4
    payload_bytes: int = 200
    rounds: int = 2
    peers_python: Path | None = None
    peers: Sequence[str] = ("pgqueuer", "procrastinate", "dbos")
    peers_depth_max: int = 1_000_000
    seconds_max: int = 30

    def __post_init__(self) -> None:
        if min(self.workers) < 1:
            raise InvalidError("plan_invalid", "A drain needs at least one worker.")
        for name in ("drain", "collections", "namespaces", "rounds"):
            if getattr(self, name) < 1:
                raise InvalidError(
                    "plan_invalid", f"{name} is {getattr(self, name)}; it must be at least 1."
                )
        if min(self.depths) < self.collections:
            raise InvalidError(
                "plan_invalid", f"{min(self.depths)} cells cannot fill {self.collections} tables."
            )
        if self.peers_python and not self.peers_python.exists():
            raise InvalidError(
                "plan_invalid",
                f"There is no Python at {self.peers_python}.",
                hint="Install requirements/peers-queues.txt into an environment of its own.",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One drain of one queue. Bytes and processor time are a cell's; None: it has no such figure.

    Attributes:
        subject: The queue.
        version: Its version.
        depth: Cells queued when the drain began.
        batch: Most cells of one claim; None: what its script found fastest.
        workers: Worker processes.
        drained: Cells claimed and finalized.
        cells_per_second: Of the drain.
        enqueue_per_second: Of the bulk enqueue before it.
        claim_p50_ms, claim_p99_ms: Times of one claim.
        finalize_p50_ms, finalize_p99_ms: Times of one finalize.
        wal_bytes_per_cell: Write-ahead log, enqueue and drain.
        entry_bytes: Size of a queued cell with its index entries.
        cpu_us_per_cell: Processor time of the worker processes.
        fairness_index: Jain's, over collections, while all had work; None where that was for fewer
            than a few claims each, which no queue can share out evenly.
    """

    subject: str
    version: str
    depth: int
    batch: int | None
    workers: int
    drained: int
    cells_per_second: float
    enqueue_per_second: float
    claim_p50_ms: float | None
    claim_p99_ms: float | None
    finalize_p50_ms: float | None
    finalize_p99_ms: float | None
    wal_bytes_per_cell: float | None
    entry_bytes: float | None
    cpu_us_per_cell: float | None
    fairness_index: float | None
