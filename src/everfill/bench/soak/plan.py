"""What a soak does."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Final

from everfill.kernel.errors import InvalidError

__all__ = ["Plan"]

_SAMPLES_MIN: Final = 8
"""Two in every quarter of the time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to measure.

    Attributes:
        minutes: How long, after the capacity is known.
        load: Share of the capacity that is asked for.
        capacity_seconds: How long work is asked for as fast as it is done, to know the capacity.
        sample_seconds: Between two looks at everything.
        workers: Cell workers.
        tables: Collections of two chained templates.
        rows: Rows of each of them.
        latency_ms: What the provider takes to answer the model column.
    """

    minutes: float = 60.0
    load: float = 0.8
    capacity_seconds: float = 60.0
    sample_seconds: float = 30.0
    workers: int = 2
    tables: int = 4
    rows: int = 20_000
    latency_ms: int = 100

    def __post_init__(self) -> None:
        for name in asdict(self):
            if getattr(self, name) <= 0:
                raise InvalidError(
                    "plan_invalid", f"{name} is {getattr(self, name)}; it must be more than 0."
                )
        if self.minutes * 60 < self.sample_seconds * _SAMPLES_MIN:
            raise InvalidError(
                "plan_invalid",
                f"{self.minutes:g} minutes hold fewer than {_SAMPLES_MIN} samples,"
                f" one every {self.sample_seconds:g} s.",
                hint="Take more minutes, or lower --sample-seconds.",
            )
