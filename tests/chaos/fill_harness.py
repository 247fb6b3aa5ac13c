"""A real `everfill fill`, its processes and servers, and what must hold when it is done."""

from __future__ import annotations

import contextlib
import csv
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import psutil
import psycopg

from everfill.infra.stack import open_stack
from everfill.infra.stack.client import stack_paths
from everfill.infra.stack.state import ServerName, StackState, find_live_state
from everfill.kernel.config import Settings

PLUGINS = Path(__file__).parent.parent / "plugins"
COLUMNS = 4  # called, called, filled at once, and one that reads both
CAP_CELLS = 1_000  # what one collection may have in flight here, so also what a kill may cost


class Fill:
    """One `everfill fill`, started again whenever it was killed."""

    def __init__(self, folder: Path, rows: int, *, data_dir: Path | None = None) -> None:
        self.folder = folder
        self.data_dir = data_dir or folder / "data"
        self.source = folder / "words.csv"
        self.out = folder / "out.csv"
        self.counted = folder / "counted"
        self.rows = rows
        self.process: subprocess.Popen[bytes] | None = None
        with self.source.open("w", encoding="utf-8") as file:
            file.write("word\n")
            file.writelines(f"w{n}\n" for n in range(rows))

    def start(self) -> None:
        """Run the command, again where it ran before."""
        command = [
            *(sys.executable, "-m", "everfill", "fill", str(self.source)),
            *("--column", "one = test:count: 1 {{word}}"),
            *("--column", "two = test:count: 2 {{one}}"),
            *("--column", "at_once = template: <{{word}}>"),
            *("--column", "after = template: {{at_once}} {{two}}"),
            *("--out", str(self.out), "--data-dir", str(self.data_dir)),
        ]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(PLUGINS), os.environ.get("PYTHONPATH", "")]),
            "COUNTED_CALLS_FILE": str(self.counted),
            "EVERFILL_LIMITS__COLLECTION_CAP": str(CAP_CELLS),
            "EVERFILL_WORKER__LEASE_SECONDS": "3",
            "EVERFILL_JANITOR__TICK_SECONDS": "1",
        }
        with (self.folder / "fill.log").open("ab") as log:
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)

    def ended_well(self) -> bool:
        """Whether it is done; where it ended otherwise it is started again."""
        assert self.process
        code = self.process.poll()
        if code is not None and code != 0:
            self.start()  # killed, or it gave up while its servers were gone: people run it again
        return code == 0

    def computed(self) -> int:
        """How many calls there were so far."""
        return self.counted.read_bytes().count(b"\n") if self.counted.exists() else 0

    def told(self) -> str:
        """Everything that the command has printed."""
        return (self.folder / "fill.log").read_text(encoding="utf-8", errors="replace")

    def processes(self) -> list[psutil.Process]:
        """What the command started itself: its workers."""
        assert self.process
        try:
            return psutil.Process(self.process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []

    def state(self) -> StackState | None:
        """The servers that are running, as their supervisor tells."""
        return find_live_state(stack_paths(Settings(data_dir=self.data_dir)))


def kill(pid: int | None) -> None:
    """End a process at once, if there still is one."""
    if pid:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def check(fill: Fill, faults: int) -> None:
    with fill.out.open(encoding="utf-8", newline="") as file:
        found = [tuple(row.values()) for row in csv.DictReader(file)]
    wanted = [
        (f"w{n}", f"1 w{n}", f"2 1 w{n}", f"<w{n}>", f"<w{n}> 2 1 w{n}") for n in range(fill.rows)
    ]
    assert found == wanted
    calls = Counter(fill.counted.read_text().splitlines())
    assert len(calls) == 2 * fill.rows
    assert sum(calls.values()) - len(calls) <= faults * CAP_CELLS


def in_flight(fill: Fill) -> int:
    """Cells that are claimed now; 0 where nobody can be asked."""
    state = fill.state()
    if state is None or ServerName.POSTGRES not in state.servers:
        return 0
    try:
        with psycopg.connect(
            state.servers[ServerName.POSTGRES].address, connect_timeout=1
        ) as connection:
            row = connection.execute("select coalesce(sum(n), 0) from everfill.claims").fetchone()
    except psycopg.Error:
        return 0
    return int(row[0]) if row else 0


async def in_database(fill: Fill) -> list[tuple[int, ...]]:
    """Entries and claims that are left, and cells that have a value."""
    async with (
        open_stack(Settings(data_dir=fill.data_dir)) as endpoints,
        await psycopg.AsyncConnection.connect(endpoints.postgres_url) as connection,
    ):
        await connection.execute("set search_path = everfill")
        cursor = await connection.execute(
            "select (select count(*) from queue), (select count(*) from claims),"
            " (select count(*) from cells"
            " where computed_value is not null)"
        )
        return await cursor.fetchall()
