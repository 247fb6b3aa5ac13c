"""The process that owns the servers of one data directory.

It starts what clients want, restarts what dies, publishes where things are, and stops everything
once no client has been there for a while. How clients and supervisors avoid each other's races:

- A client holds `clients.lock` shared before it looks at anything. The supervisor withdraws its
  state only while it has that lock alone. So a client that sees a living supervisor's state keeps
  that supervisor.
- `supervisor.lock` elects one supervisor. A second one waits: for the first to serve what is
  wanted (then it was not needed), or for its end (then it takes over).
- A state file without a supervisor means that it was killed; a stop in good order removes the file.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, cast

import psutil
import structlog

from everfill.infra.stack.binaries import find_binary
from everfill.infra.stack.identity import choose_identity
from everfill.infra.stack.locks import FileLock
from everfill.infra.stack.paths import StackPaths, socket_dir, trim_log
from everfill.infra.stack.postgres_server import PostgresServer
from everfill.infra.stack.redis_server import RedisServer
from everfill.infra.stack.runner import Runner
from everfill.infra.stack.server import Server
from everfill.infra.stack.state import (
    STATE_VERSION,
    ServerName,
    StackState,
    broken_state,
    find_live_state,
    write_state,
)
from everfill.infra.stack.temporal_server import TemporalServer
from everfill.kernel.errors import EverfillError

__all__ = ["SupervisorOptions", "supervise", "wanted_servers"]

_log = structlog.get_logger(__name__)

_TICK_SECONDS: Final = 0.1
_LOG_CHECK_TICKS: Final = 600
_LOG_GROWTH_BYTES_MAX: Final = 20_000_000
_STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorOptions:
    """What the client that launches a supervisor decides for everyone.

    Attributes:
        linger_seconds: How long to stay when the last client has gone.
        temporal_namespace: Made in Temporal at its start.
    """

    linger_seconds: float
    temporal_namespace: str


async def supervise(
    paths: StackPaths, options: SupervisorOptions, announce_ready: Callable[[], None]
) -> None:
    """Serve the data directory until it is no longer needed.

    Args:
        paths: The data directory; it exists.
        options: What the launching client decided.
        announce_ready: Called once everything wanted is served, by this supervisor or another.

    Raises:
        EverfillError: Where a server cannot be started at all; the others are stopped first.
    """
    async with _elected(paths) as lock:
        if lock is not None:
            await _Supervisor(paths, options, lock).serve(announce_ready)
        else:
            announce_ready()


def wanted_servers(paths: StackPaths) -> set[ServerName]:
    """What the clients of the data directory need."""
    return {name for name in ServerName if (paths.wanted_dir / name.value).exists()}


@asynccontextmanager
async def _elected(paths: StackPaths) -> AsyncGenerator[FileLock | None]:
    """The supervisor's lock, or None where another supervisor serves what is wanted."""
    lock = FileLock(paths.supervisor_lock)
    try:
        while not lock.try_exclusive():
            state = find_live_state(paths)
            if state is not None and wanted_servers(paths) <= set(state.servers):
                yield None
                return
            await asyncio.sleep(_TICK_SECONDS / 4)
        yield lock
    finally:
        lock.close()


class _Supervisor:
    def __init__(self, paths: StackPaths, options: SupervisorOptions, lock: FileLock) -> None:
        self._paths = paths
        self._options = options
        self._lock = lock
        self._clients = FileLock(paths.clients_lock)
        self._runners: dict[ServerName, Runner] = {}
        self._given_up: dict[ServerName, str] = {}
        self._late: asyncio.Task[None] | None = None
        self._started_at = datetime.now(UTC).isoformat(timespec="seconds")
        self._stopping = asyncio.Event()
        self._is_published = False
        self._is_unwritten = False

    async def serve(self, announce_ready: Callable[[], None]) -> None:
        self._paths.state_file.unlink(missing_ok=True)
        loop = asyncio.get_running_loop()
        for sign in _STOP_SIGNALS:
            loop.add_signal_handler(sign, self._stopping.set)
        first = asyncio.create_task(self._start_all())
        stopped = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait({first, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if first.done():
                first.result()
                self._publish_from_now_on()
                announce_ready()
                await self._until_unneeded()
        finally:
            tasks: set[asyncio.Task[Any]] = {first, stopped} | (
                {self._late} if self._late else set()
            )
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._stop()

    async def _start_all(self) -> None:
        """Start what is wanted, all at once; the first failure ends the others."""
        try:
            async with asyncio.TaskGroup() as group:
                for name in sorted(wanted_servers(self._paths)):
                    group.create_task(self._start(name))
        except BaseExceptionGroup as group:
            raise _first(group) from group

    async def _start_late(self, names: set[ServerName]) -> None:
        """Start further servers beside running ones, which a failure must not end."""
        for name in sorted(names):
            try:
                await self._start(name)
            except EverfillError as error:
                _log.error("server_given_up", server=name, problem=str(error))
                self._given_up[name] = str(error)
            self._publish()

    async def _start(self, name: ServerName) -> None:
        log = self._paths.log(name.value)
        trim_log(log)
        runner = Runner(await self._make_server(name), log, self._publish)
        self._runners[name] = runner
        await runner.start()

    async def _make_server(self, name: ServerName) -> Server:
        binary, paths = find_binary(name), self._paths
        match name:
            case ServerName.TEMPORAL:
                namespace = self._options.temporal_namespace
                return TemporalServer(binary=binary, paths=paths, namespace=namespace)
            case ServerName.REDIS:
                sockets = socket_dir(paths)
                return RedisServer(binary=binary, socket_dir=sockets, run_dir=paths.run_dir)
            case ServerName.POSTGRES:
                identity, version = await choose_identity(binary.path)
                return PostgresServer(
                    binary=binary,
                    version=version,
                    paths=paths,
                    socket_dir=socket_dir(paths),
                    identity=identity,
                    memory_bytes=psutil.virtual_memory().total,
                )

    async def _until_unneeded(self) -> None:
        """Return once nobody has been there for the linger, or a stop is asked for."""
        loop, ticks = asyncio.get_running_loop(), 0
        last_seen = loop.time()
        while not self._stopping.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), _TICK_SECONDS)
            if not self._lock.is_current():
                _log.warning("data_directory_gone", data_dir=str(self._paths.data_dir))
                return
            if not self._clients.try_exclusive():
                last_seen = loop.time()
            elif loop.time() - last_seen >= self._options.linger_seconds:
                return  # still holding the clients' lock: nobody can come in before `_stop`
            else:
                self._clients.unlock()
            ticks += 1
            self._mind(ticks)

    def _mind(self, ticks: int) -> None:
        """Start what a new client wants besides, say what could not be said, bound the logs."""
        if self._is_unwritten:
            self._publish()
        missing = wanted_servers(self._paths) - set(self._runners) - set(self._given_up)
        if missing and (self._late is None or self._late.done()):
            self._late = asyncio.create_task(self._start_late(missing))
        if ticks % _LOG_CHECK_TICKS == 0:
            for log in self._paths.logs_dir.glob("*.log"):
                if log.stat().st_size > _LOG_GROWTH_BYTES_MAX:
                    trim_log(log)

    def _publish_from_now_on(self) -> None:
        self._is_published = True
        self._publish()
        _log.info("stack_ready", pid=os.getpid())

    def _publish(self) -> None:
        if not self._is_published:
            return
        state = StackState(
            version=STATE_VERSION,
            supervisor_pid=os.getpid(),
            started_at=self._started_at,
            servers={
                name: runner.state
                for name, runner in self._runners.items()
                if name not in self._given_up
            }
            | {name: broken_state(problem) for name, problem in self._given_up.items()},
        )
        try:
            write_state(self._paths, state)
        except OSError as error:  # a full disk: the servers are kept running all the same
            if not self._is_unwritten:
                _log.error("state_unwritten", problem=str(error))
            self._is_unwritten = True
        else:
            self._is_unwritten = False

    async def _stop(self) -> None:
        """Withdraw the state, then stop every server."""
        self._is_published = False
        self._paths.state_file.unlink(missing_ok=True)
        for name in ServerName:
            (self._paths.wanted_dir / name.value).unlink(missing_ok=True)
        self._clients.close()
        await asyncio.gather(*(runner.stop() for runner in self._runners.values()))
        _log.info("stack_stopped")


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """One error of the group: the servers fail for one reason at a time, as a rule."""
    error = group.exceptions[0]
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error
