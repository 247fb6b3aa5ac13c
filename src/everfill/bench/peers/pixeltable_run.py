"""The processes of `pixeltable_fill.py`: Pixeltable's own, its Postgres, and what both use."""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

import psutil
import psycopg
from psycopg import sql

CHILD = Path(__file__).with_name("pixeltable_child.py")
START_SECONDS_MAX = 120.0
STOP_SECONDS_MAX = 30.0
SAMPLE_SECONDS = 0.2
LOOK_SECONDS = 0.05

Event = Mapping[str, float]


class Child:
    """A process inside Pixeltable: what it tells, and a way to say when it may go on."""

    def __init__(self, run: Run, part: str, *extra: str) -> None:
        runtime = run.folder / "run"  # locks and, where the home's path is long, the socket
        runtime.mkdir(mode=0o700, exist_ok=True)
        environment = {
            **os.environ,
            "PIXELTABLE_HOME": str(run.home),
            "PIXELTABLE_VERBOSITY": "0",
            "XDG_RUNTIME_DIR": str(runtime),
        }
        self.log = run.folder / f"{part}-{time.monotonic_ns()}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(CHILD), part, *extra],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.stdin: IO[str] = self.process.stdin
        self._told: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._listen, args=(self.process.stdout,), daemon=True).start()

    def _listen(self, out: IO[str]) -> None:
        for line in out:
            self._told.put(line)
        self._told.put("")

    def expect(self, event: str, seconds: float) -> Event:
        """The next thing it tells; TimeoutError when it says nothing, RuntimeError when it died."""
        try:
            line = self._told.get(timeout=seconds)
        except queue.Empty:
            raise TimeoutError(event) from None
        if not line:
            tail = self.log.read_text(encoding="utf-8", errors="replace")[-2000:]
            raise RuntimeError(f"Pixeltable's process ended before '{event}':\n{tail}")
        told = json.loads(line)
        assert told["event"] == event, told
        return told

    def say(self, line: str = "go") -> None:
        """Let it go on."""
        self.stdin.write(line + "\n")
        self.stdin.flush()

    def import_all(self, seconds: float) -> Event:
        """Let it import, and wait until it has read everything back."""
        self.say()
        self.expect("inserted", seconds)
        return self.expect("loaded", seconds)

    def kill(self) -> None:
        """End it as a power cut would."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()


class Run:
    """One measurement: its folder, its file of words and its processes."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self.asked = asked
        self.folder: Path = asked.folder.resolve()
        self.home = self.folder / "home"
        self.folder.mkdir(parents=True, exist_ok=False)
        self.children: list[Child] = []

    def words(self, prefix: str, rows: int) -> Path:
        """A CSV file of words."""
        path = self.folder / f"{prefix}.csv"
        lines = (f"{prefix}{number}\n" for number in range(rows))
        path.write_text("word\n" + "".join(lines), encoding="utf-8")
        return path

    def start(self, part: str, *extra: str) -> tuple[Child, Event]:
        """Start a process and wait until it is ready."""
        asked = self.asked
        given = [
            *("--functions", asked.functions, "--provider-url", asked.provider_url),
            *("--connections", str(asked.connections), "--answer", asked.answer),
        ]
        child = Child(self, part, *given, *extra)
        self.children.append(child)
        return child, child.expect("ready", START_SECONDS_MAX)

    def load(self, source: Path, *extra: str) -> tuple[Child, Event]:
        """Start the process that imports a file of words."""
        chunk = ("--chunk-rows", str(self.asked.chunk_rows))
        last = ("--columns-last",) if self.asked.columns_last else ()
        return self.start("load", "--source", str(source), *chunk, *last, *extra)

    def calls(self) -> int:
        """How many calls the provider has counted."""
        parts = urlsplit(str(self.asked.provider_url))
        assert parts.hostname is not None
        connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=10)
        with contextlib.closing(connection):
            connection.request("GET", "/calls")
            return int(json.loads(connection.getresponse().read())["calls"])

    def stop(self) -> None:
        """End every process that this run has started, and the Postgres that Pixeltable leaves."""
        for child in self.children:
            child.kill()
        pid_file = self.home / "pgdata" / "postmaster.pid"
        with contextlib.suppress(FileNotFoundError, psutil.NoSuchProcess):
            process = psutil.Process(int(pid_file.read_text(encoding="utf-8").split()[0]))
            process.send_signal(signal.SIGINT)
            process.wait(timeout=STOP_SECONDS_MAX)


class Memory:
    """The most that the importing process, and that process with Postgres, ever had resident.

    Pages that Postgres' processes share are divided among them where the system tells, so that
    the shared buffers count once.
    """

    def __init__(self, client: int, postmaster: int) -> None:
        self._peak = {"client": 0, "together": 0}
        self._client = psutil.Process(client)
        self._postmaster = psutil.Process(postmaster)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def _sample(self) -> None:
        while not self._stopped.wait(SAMPLE_SECONDS):
            with contextlib.suppress(psutil.Error):
                self._look()

    def _look(self) -> None:
        client = self._client.memory_info().rss
        server = (self._postmaster, *self._postmaster.children(recursive=True))
        together = client + sum(own_bytes(process) for process in server)
        self._peak["client"] = max(self._peak["client"], client)
        self._peak["together"] = max(self._peak["together"], together)

    def stop(self) -> dict[str, float]:
        """The figures, in MiB."""
        self._stopped.set()
        self._thread.join()
        self._look()
        return {name: round(size / 2**20, 1) for name, size in self._peak.items()}


def own_bytes(process: psutil.Process) -> int:
    """The memory of a process, shared pages divided among their users; 0 for one that ended."""
    try:
        info = process.memory_full_info()
    except psutil.NoSuchProcess:
        return 0
    return int(getattr(info, "pss", info.rss))


class Watcher:
    """Notes when a computed value is first there for a connection with no part in the import.

    It asks Pixeltable's Postgres itself, for the first page of the table, so that looking costs
    next to nothing and loads none of Pixeltable.
    """

    def __init__(self, home: Path) -> None:
        self.seen_at: float | None = None
        lines = (home / "pgdata" / "postmaster.pid").read_text(encoding="utf-8").splitlines()
        self._connection = psycopg.connect(
            host=lines[4], port=lines[3], user="postgres", dbname="pixeltable", autocommit=True
        )
        self._query = first_page_of(self._connection)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._stopped.wait(LOOK_SECONDS):
            if self._connection.execute(self._query).fetchone() is not None:
                self.seen_at = time.monotonic()
                return

    def stop(self) -> float:
        """When the value was seen, by the monotonic clock; it must be there by now."""
        self._thread.join(LOOK_SECONDS * 20)
        self._stopped.set()
        self._thread.join()
        self._connection.close()
        assert self.seen_at is not None
        return self.seen_at


def first_page_of(connection: psycopg.Connection[tuple[object, ...]]) -> sql.Composed:
    """The query for a row whose last computed column is filled, in Pixeltable's only table."""
    row = connection.execute(
        "select table_name, column_name from information_schema.columns"
        " where table_name ~ '^tbl_[0-9a-f]{32}$' and column_name ~ '^col_[0-9]+$'"
        " order by ordinal_position desc limit 1"
    ).fetchone()
    assert row is not None
    table, column = (sql.Identifier(str(name)) for name in row)
    query = sql.SQL("select 1 from {} where ctid < '(1,0)' and {} is not null limit 1")
    return query.format(table, column)
