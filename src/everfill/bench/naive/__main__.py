"""`python -m everfill.bench.naive`: try the naive design on an embedded Temporal of its own."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from everfill.bench.naive.plan import REPAIRED_ROWS, ROWS, NaivePlan
from everfill.bench.naive.report import NaiveReport, Trial
from everfill.bench.naive.run import run_naive
from everfill.infra.stack import open_stack
from everfill.infra.stack.client import stack_paths
from everfill.kernel.config import Settings


async def _try(plan: NaivePlan) -> NaiveReport:
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(data_dir=Path(folder))
        database_file = stack_paths(settings).temporal_file
        async with open_stack(settings, linger_seconds=0.0) as stack:
            return await run_naive(
                stack.temporal_address, plan, database_file=database_file, on_trial=_tell
            )


def _tell(trial: Trial) -> None:
    sys.stderr.write(json.dumps(asdict(trial)) + "\n")


def main() -> None:
    """Try what the options ask for; the report goes to stdout."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="*", default=ROWS)
    parser.add_argument("--repaired-rows", type=int, nargs="*", default=REPAIRED_ROWS)
    parser.add_argument("--seconds-max", type=float, default=NaivePlan().seconds_max)
    parser.add_argument("--in-flight-max", type=int, default=NaivePlan().in_flight_max)
    parser.add_argument("--slots", type=int, default=NaivePlan().slots)
    parser.add_argument("--pollers", type=int, default=NaivePlan().pollers)
    asked = parser.parse_args()
    plan = NaivePlan(
        rows=tuple(asked.rows),
        repaired_rows=tuple(asked.repaired_rows),
        seconds_max=asked.seconds_max,
        in_flight_max=asked.in_flight_max,
        slots=asked.slots,
        pollers=asked.pollers,
    )
    sys.stdout.write(asyncio.run(_try(plan)).to_json())


if __name__ == "__main__":
    main()
