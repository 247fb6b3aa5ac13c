"""What a worker of the queue benchmark counts."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Tally"]


@dataclass(slots=True, kw_only=True)
class Tally:
    """What one worker did; times in seconds, moments by the machine's monotonic clock."""

    cells: int = 0
    warm_up_cells: int = 0
    claims: list[float] = field(default_factory=list[float])
    finalizes: list[float] = field(default_factory=list[float])
    served: dict[int, int] = field(default_factory=dict[int, int])
    """Cells of each collection."""
    began_at: float = 0.0
    ended_at: float = 0.0
    cpu_seconds: float = 0.0
