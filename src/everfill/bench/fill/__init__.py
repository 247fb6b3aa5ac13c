"""A whole fill, from the import to the last cell, beside Pixeltable at the same work."""

from __future__ import annotations

from everfill.bench.fill.compare import compare, plot
from everfill.bench.fill.plan import Plan

__all__ = ["Plan", "compare", "plot"]
