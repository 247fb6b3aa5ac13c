"""Claim and finalize over the real Postgres, at depth, beside three other Postgres queues."""

from __future__ import annotations

from everfill.bench.queue.compare import Plan, compare, plot

__all__ = ["Plan", "compare", "plot"]
