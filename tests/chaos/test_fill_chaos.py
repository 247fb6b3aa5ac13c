"""A fill that is killed again and again ends with every cell right and little computed twice."""

from __future__ import annotations

import asyncio
import contextlib
import csv
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import psutil
import psycopg
import pytest
import redis

from everfill.infra.stack import open_stack
from everfill.infra.stack.client import stack_paths
from everfill.infra.stack.state import ServerName, StackState, find_live_state
from everfill.kernel.config import Settings

PLUGINS = Path(__file__).parent.parent / "plugins"
CAP_CELLS = 1_000  # what one collection may have in flight here, so also what a kill may cost


class Fill:
    """One `everfill fill`, started again whenever it was killed."""

    def __init__(self, folder: Path, rows: int) -> None:
        self.folder = folder
        self.data_dir = folder / "data"
        self.source = folder / "words.csv"
        self.out = folder / "out.csv"
        self.counted = folder / "counted"
        self.rows = rows
        self.process: subprocess.Popen[bytes] | None = None
        with self.source.open("w", encoding="utf-8") as file:
            file.write("word\n")
            file.writelines(f"w{n}\n" for n in range(rows))

    def start(self) -> None:
        command = [
            *(sys.executable, "-m", "everfill", "fill", str(self.source)),
            *("--column", "one = test:count: 1 {{word}}"),
            *("--column", "two = test:count: 2 {{one}}"),
            *("--out", str(self.out), "--data-dir", str(self.data_dir)),
        ]
        environment = {
            **os.environ,
            "PYTHONPATH": str(PLUGINS),
            "COUNTED_CALLS_FILE": str(self.counted),
            "EVERFILL_LIMITS__COLLECTION_CAP": str(CAP_CELLS),
            "EVERFILL_WORKER__LEASE_SECONDS": "3",
            "EVERFILL_JANITOR__TICK_SECONDS": "1",
        }
        with (self.folder / "fill.log").open("ab") as log:
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)

    def ended_well(self) -> bool:
        assert self.process
        code = self.process.poll()
        if code is not None and code != 0:
            self.start()  # killed, or it gave up while its servers were gone: people run it again
        return code == 0

    def computed(self) -> int:
        return self.counted.read_bytes().count(b"\n") if self.counted.exists() else 0

    def processes(self) -> list[psutil.Process]:
        assert self.process
        try:
            return psutil.Process(self.process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []

    def state(self) -> StackState | None:
        return find_live_state(stack_paths(Settings(data_dir=self.data_dir)))


def kill(pid: int | None) -> None:
    if pid:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


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
        if due and fill.computed() >= due[0]:
            due.pop(0)
            fault = FAULTS[len(done) % len(FAULTS)]
            fault(fill)
            done.append(fault.__name__)
        time.sleep(chance.uniform(0.01, 0.05))
    return done


def check(fill: Fill, faults: int) -> None:
    with fill.out.open(encoding="utf-8", newline="") as file:
        found = [(row["word"], row["one"], row["two"]) for row in csv.DictReader(file)]
    assert found == [(f"w{n}", f"1 w{n}", f"2 1 w{n}") for n in range(fill.rows)]
    calls = Counter(fill.counted.read_text().splitlines())
    assert len(calls) == 2 * fill.rows
    assert sum(calls.values()) - len(calls) <= faults * CAP_CELLS


async def in_database(fill: Fill) -> list[tuple[int, ...]]:
    async with (
        open_stack(Settings(data_dir=fill.data_dir)) as endpoints,
        await psycopg.AsyncConnection.connect(endpoints.postgres_url) as connection,
    ):
        await connection.execute("set search_path = everfill")
        cursor = await connection.execute(
            "select (select count(*) from queue), (select count(*) from cells"
            " where computed_value is not null)"
        )
        return await cursor.fetchall()


@pytest.mark.chaos
@pytest.mark.parametrize("seed", [1])
def test_a_fill_survives_every_kind_of_fault(tmp_path: Path, seed: int) -> None:
    fill = Fill(tmp_path, rows=6_000)
    done = run(fill, faults=len(FAULTS), seed=seed, patience_seconds=300)
    assert len(done) == len(FAULTS)
    check(fill, len(done))
    assert asyncio.run(in_database(fill)) == [(0, 2 * fill.rows)]


@pytest.mark.slow
@pytest.mark.chaos
@pytest.mark.parametrize("seed", [11, 12])
def test_a_large_fill_survives_twenty_faults(tmp_path: Path, seed: int) -> None:
    fill = Fill(tmp_path, rows=100_000)
    done = run(fill, faults=20, seed=seed, patience_seconds=1_800)
    assert len(done) == 20
    check(fill, len(done))
    assert asyncio.run(in_database(fill)) == [(0, 2 * fill.rows)]
