"""How soon an edited cell starts while a bulk run is queued, and whether caps hold meanwhile."""

from __future__ import annotations

from everfill.bench.edit.measure import Plan, measure, plot

__all__ = ["Plan", "measure", "plot"]
