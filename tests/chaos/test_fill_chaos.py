"""A fill that is killed again and again ends with every cell right and little computed twice."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import redis
from fill_harness import CAP_CELLS, COLUMNS, Fill, check, in_database, in_flight, kill

from everfill.infra.stack.state import ServerName


def kill_command(fill: Fill) -> None:
    assert fill.process
    kill(fill.process.pid)


def kill_worker(fill: Fill) -> None:
    children = fill.processes()
    if children:
        kill(random.choice(children).pid)


def kill_server(fill: Fill) -> None:
    state = fill.state()
    if state:
        kill(random.choice(list(state.servers.values())).pid)


def kill_supervisor(fill: Fill) -> None:
    state = fill.state()
    if state:
        kill(state.supervisor_pid)


def kill_everything(fill: Fill) -> None:
    state, children = fill.state(), fill.processes()
    kill_command(fill)
    for child in children:
        kill(child.pid)
    if state:
        kill(state.supervisor_pid)
        for server in state.servers.values():
            kill(server.pid)


def flush_redis(fill: Fill) -> None:
    state = fill.state()
    if state:
        try:
            client = redis.Redis.from_url(state.servers[ServerName.REDIS].address)
            client.flushall()
            client.close()
        except redis.RedisError:
            pass  # it is down at this moment, which is as good as flushed


def delete_temporal(fill: Fill) -> None:
    """Its database is rebuildable: nothing that matters is in it."""
    state = fill.state()
    if state:
        kill(state.servers[ServerName.TEMPORAL].pid)
        for file in (fill.data_dir / "temporal").glob("temporal.db*"):
            file.unlink(missing_ok=True)


def restart_postgres(fill: Fill) -> None:
    state = fill.state()
    if state and ServerName.POSTGRES in state.servers:
        try:
            pid = state.servers[ServerName.POSTGRES].pid
            if pid:
                os.kill(pid, signal.SIGINT)
        except ProcessLookupError:
            pass


FAULTS: list[Callable[[Fill], None]] = [
    kill_command,
    kill_worker,
    kill_server,
    kill_supervisor,
    kill_everything,
    flush_redis,
    delete_temporal,
    restart_postgres,
]


def run(fill: Fill, *, faults: int, seed: int, patience_seconds: float) -> list[str]:
    """Run to the end with faults at random moments; returns their names in order."""
    chance = random.Random(seed)
    random.seed(seed)
    due = sorted(chance.uniform(0.02, 0.95) * 2 * fill.rows for _ in range(faults))
    done: list[str] = []
    deadline = time.monotonic() + patience_seconds
    fill.start()
    while not fill.ended_well():
        assert time.monotonic() < deadline, f"not finished after {done}"
        assert in_flight(fill) <= CAP_CELLS, f"the cap was exceeded after {done}"
        if due and fill.computed() >= due[0]:
            due.pop(0)
            fault = FAULTS[len(done) % len(FAULTS)]
            fault(fill)
            done.append(fault.__name__)
        time.sleep(chance.uniform(0.01, 0.05))
    return done


@pytest.mark.chaos
@pytest.mark.parametrize("seed", [1])
def test_a_fill_survives_every_kind_of_fault(tmp_path: Path, seed: int) -> None:
    fill = Fill(tmp_path, rows=6_000)
    done = run(fill, faults=len(FAULTS), seed=seed, patience_seconds=300)
    assert len(done) == len(FAULTS)
    check(fill, len(done))
    assert asyncio.run(in_database(fill)) == [(0, 0, COLUMNS * fill.rows)]


@pytest.mark.slow
@pytest.mark.chaos
@pytest.mark.parametrize("seed", [11, 12])
def test_a_large_fill_survives_twenty_faults(tmp_path: Path, seed: int) -> None:
    fill = Fill(tmp_path, rows=100_000)
    done = run(fill, faults=20, seed=seed, patience_seconds=1_800)
    assert len(done) == 20
    check(fill, len(done))
    assert asyncio.run(in_database(fill)) == [(0, 0, COLUMNS * fill.rows)]
