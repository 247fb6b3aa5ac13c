"""Tries the naive design on a Temporal server, shape by shape, size by size."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from temporalio.client import Client
from temporalio.runtime import LoggingConfig, Runtime, TelemetryConfig

from everfill.bench.naive.plan import NaivePlan, Shape
from everfill.bench.naive.report import NaiveReport, Outcome, Trial
from everfill.bench.naive.trial import run_trial
from everfill.bench.naive.usage import ServerPlace, find_server
from everfill.infra.temporal import connect_temporal
from everfill.kernel.config import TemporalSettings

__all__ = ["run_naive"]


async def run_naive(
    temporal_address: str,
    plan: NaivePlan,
    *,
    database_file: Path | None = None,
    on_trial: Callable[[Trial], None] | None = None,
) -> NaiveReport:
    """Try every size of the plan with a worker in this process; a break is reported, not raised.

    A shape that ran out of time at one size is not tried at larger ones.

    Args:
        temporal_address: `host:port` of a server that nobody else uses meanwhile.
        plan: What to try.
        database_file: Of the server, to see it grow.
        on_trial: Told of each size as it ends.

    Raises:
        UnavailableError: `temporal_unavailable`: nothing answers at the address.
    """
    client = await connect_temporal(TemporalSettings(), temporal_address, runtime=_quiet_core())
    server = ServerPlace(pid=find_server(temporal_address), database_file=database_file)
    trials: list[Trial] = []
    with _quiet_worker():
        async for trial in _try_sizes(client, plan, server):
            trials.append(trial)
            if on_trial is not None:
                on_trial(trial)
    return NaiveReport(plan=plan, trials=trials)


async def _try_sizes(client: Client, plan: NaivePlan, server: ServerPlace) -> AsyncGenerator[Trial]:
    slow: set[Shape] = set()
    for size in plan.sizes():
        if size.shape in slow:
            continue
        trial = await run_trial(client, plan, size, server)
        if trial.outcome is Outcome.OUT_OF_TIME:
            slow.add(size.shape)
        yield trial


def _quiet_core() -> Runtime:
    """Temporal's core without its log: it prints on stdout, thousands of lines when a size breaks.

    What a reader must know of it is in the histories, and so in the report.
    """
    return Runtime(telemetry=TelemetryConfig(logging=LoggingConfig(filter="off")))


@contextmanager
def _quiet_worker() -> Generator[None]:
    """Silence the worker's own log likewise: a deadlock prints a stack for every pending cell."""
    log = logging.getLogger("temporalio")
    propagated = log.propagate
    log.propagate = False
    log.addHandler(nothing := logging.NullHandler())
    try:
        yield
    finally:
        log.removeHandler(nothing)
        log.propagate = propagated
