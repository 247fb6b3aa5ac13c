"""What the benchmark of a whole fill does, and what it finds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from everfill.kernel.errors import InvalidError

__all__ = ["Measured", "Plan", "Work"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One fill.

    Attributes:
        name: For people.
        rows: Rows imported.
        latency_ms: What a provider takes to answer; None: two chained templates instead of a model.
        edits: Rows edited in mid-run; their latency is measured.
        kill: Whether everything is killed at half of the calls, and the fill run again.
    """

    name: str
    rows: int
    latency_ms: int | None = None
    edits: int = 0
    kill: bool = False

    @property
    def cells(self) -> int:
        """Cells computed."""
        return self.rows * (2 if self.latency_ms is None else 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to measure.

    Attributes:
        rows: Rows of the template fill.
        latencies_ms: Latencies of the provider, one fill each.
        provider_rows: Rows of a provider's fill at 20 ms; of slower ones fewer, down to a tenth.
        slots: Calls under way at once.
        edits: Rows edited in mid-run of an own fill.
        edit_rows: Rows of that fill; the longer it is, the longer waits who must wait for its end.
        rounds: How often everything is measured, subjects in turn.
        pixeltable_python: A Python that has Pixeltable; None: Everfill alone.
    """

    rows: int = 100_000
    latencies_ms: Sequence[int] = (20, 200, 2_000)
    provider_rows: int = 5_000
    slots: int = 200
    edits: int = 20
    edit_rows: int = 40_000
    rounds: int = 2
    pixeltable_python: Path | None = None

    def __post_init__(self) -> None:
        for name in ("rows", "provider_rows", "slots", "edit_rows", "rounds"):
            if getattr(self, name) < 1:
                raise InvalidError(
                    "plan_invalid", f"{name} is {getattr(self, name)}; it must be at least 1."
                )
        if self.pixeltable_python and not self.pixeltable_python.exists():
            raise InvalidError(
                "plan_invalid",
                f"There is no Python at {self.pixeltable_python}.",
                hint="Install requirements/peers-pixeltable.txt into an environment of its own.",
            )

    @property
    def works(self) -> list[Work]:
        """Every fill: throughput first, then edits in mid-run, then a crash."""
        middle = self.latencies_ms[len(self.latencies_ms) // 2] if self.latencies_ms else None
        works = [Work(name="two templates", rows=self.rows)]
        for latency_ms in self.latencies_ms:
            rows = max(self.provider_rows // 10, self.provider_rows * 20 // latency_ms)
            works.append(
                Work(name=f"a provider at {latency_ms} ms", rows=rows, latency_ms=latency_ms)
            )
        if middle is not None and self.edits:
            works.append(
                Work(
                    name=f"edits during a fill at {middle} ms",
                    rows=self.edit_rows,
                    latency_ms=middle,
                    edits=self.edits,
                )
            )
            works.append(
                Work(
                    name="kill -9 at half of a fill",
                    rows=min(self.provider_rows, 2_000),
                    latency_ms=middle,
                    kill=True,
                )
            )
        return works


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One fill by one subject; None: not measured in it.

    Attributes:
        subject: Who filled.
        version: Of the subject.
        work: What was filled.
        cells: Cells computed.
        seconds: From the start of the import to the last cell.
        cells_per_second: Cells over seconds.
        cpu_us_per_cell: Processor time of all processes, servers included.
        peak_resident_mib: Of all processes together; what they share counts once.
        first_cell_seconds: Until somebody else could see one computed cell.
        edit_p50_ms, edit_p99_ms: From an edit to the computed cell that depends on it.
        spent_passes: Calls over cells, after the kill and the second run.
        lost_cells: Cells that were missing or wrong at the end.
    """

    subject: str
    version: str
    work: str
    cells: int
    seconds: float | None = None
    cells_per_second: float | None = None
    cpu_us_per_cell: float | None = None
    peak_resident_mib: float | None = None
    first_cell_seconds: float | None = None
    edit_p50_ms: float | None = None
    edit_p99_ms: float | None = None
    spent_passes: float | None = None
    lost_cells: int | None = None
