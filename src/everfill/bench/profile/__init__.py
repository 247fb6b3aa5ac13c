"""Where a cell's time goes, layer by layer, and how far a whole fill is from its statements."""

from __future__ import annotations

from everfill.bench.profile.measure import measure, plot

__all__ = ["measure", "plot"]
