"""The scheduling and state-machine layer in one process, for two designs side by side.

*Orchestrator only* is one durable activity a cell, all futures in one selector. *Everfill* is the
queue with lanes, caps and a bounded history. No database and no network: what is compared is the
shape of the work. The rules are those of `everfill.autofill.machine`, carried out over arrays.
"""

from __future__ import annotations

from everfill.bench.simulator.compare import compare, plot
from everfill.bench.simulator.run import simulate
from everfill.bench.simulator.scenario import Design, Report, Scenario

__all__ = ["Design", "Report", "Scenario", "compare", "plot", "simulate"]
