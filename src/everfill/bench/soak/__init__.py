"""An hour of mixed work below capacity: does anything grow, or become slower?"""

from __future__ import annotations

from everfill.bench.soak.measure import measure, plot
from everfill.bench.soak.plan import Plan

__all__ = ["Plan", "measure", "plot"]
