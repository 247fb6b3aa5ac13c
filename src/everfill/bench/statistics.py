"""The few figures that benchmarks make of many."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["jain", "percentile_ms"]


def jain(served: Sequence[float], parties: int) -> float:
    """Jain's fairness index: 1 where all parties got the same, 1/n where one of n got everything.

    Args:
        served: What parties got; one that got nothing may be left out.
        parties: How many there are.
    """
    total, squares = sum(served), sum(amount * amount for amount in served)
    return total * total / (parties * squares) if squares else 1.0


def percentile_ms(seconds: Sequence[float], share: float) -> float | None:
    """The time that this share of the others does not exceed, in milliseconds; None: no times."""
    if not seconds:
        return None
    place = min(len(seconds) - 1, int(len(seconds) * share))
    return round(sorted(seconds)[place] * 1_000, 3)
