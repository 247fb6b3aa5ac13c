"""Join the stack of a data directory, launching it where it does not run."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import structlog

from everfill.infra.stack.children import last_words, tail
from everfill.infra.stack.locks import FileLock, is_held
from everfill.infra.stack.paths import StackPaths
from everfill.infra.stack.room import find_want_of_room
from everfill.infra.stack.state import ServerName, ServerStatus, StackState, find_live_state
from everfill.kernel.config import Settings
from everfill.kernel.errors import EverfillError, UnavailableError

__all__ = ["Endpoints", "embedded_servers", "open_stack", "stack_paths"]

_log = structlog.get_logger(__name__)

_POLL_SECONDS: Final = 0.01
_GUARD_SECONDS: Final = 0.5
_SILENT_DEATHS_MAX: Final = 3
_BROKEN_SECONDS: Final = 10.0
"""Longer than a supervisor waits between two tries: what kept a server from starting may be over,
as when a full disk has room again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoints:
    """Where the three servers are, embedded or outside."""

    postgres_url: str = field(repr=False)
    temporal_address: str
    redis_url: str = field(repr=False)


@asynccontextmanager
async def open_stack(
    settings: Settings, *, linger_seconds: float = 5.0, start_timeout_seconds: float = 120.0
) -> AsyncGenerator[Endpoints]:
    """Have the servers running while the context is open.

    Servers that the settings place outside are neither started nor asked. The others are shared by
    everyone on the data directory; the client that finds none running launches them. If their
    supervisor is killed while the context is open, it is launched again at the same addresses.

    Args:
        settings: Names the data directory and the outside servers.
        linger_seconds: How long a supervisor launched here stays when its last client has gone.
        start_timeout_seconds: How long to wait for servers that are starting or recovering.

    Raises:
        EverfillError: `data_dir_unusable`, `server_binary_missing`, `server_start_failed`,
            `stack_start_timeout` and others of the servers, each with what to do. Whatever a full
            disk made fail, also while the context was open, ends as `disk_full`.
    """
    wanted = embedded_servers(settings)
    if not wanted:
        yield _endpoints(settings, None)
        return
    paths = stack_paths(settings)
    try:
        async with _open_embedded(
            settings, paths, wanted, linger_seconds, start_timeout_seconds
        ) as endpoints:
            yield endpoints
    except Exception as error:
        is_own = isinstance(error, EverfillError) and not isinstance(error, UnavailableError)
        full = None if is_own else find_want_of_room(paths.data_dir)
        if full is None:
            raise
        raise full from error


@asynccontextmanager
async def _open_embedded(
    settings: Settings,
    paths: StackPaths,
    wanted: frozenset[ServerName],
    linger_seconds: float,
    start_timeout_seconds: float,
) -> AsyncGenerator[Endpoints]:
    paths.create()
    client = _Client(paths, wanted, settings.temporal.namespace, linger_seconds)
    lock = FileLock(paths.clients_lock)
    try:
        state = await _in_time(client.join(lock), paths, start_timeout_seconds)
        guard = asyncio.create_task(client.guard())
        try:
            yield _endpoints(settings, state)
        finally:
            guard.cancel()
            await asyncio.gather(guard, return_exceptions=True)
    finally:
        lock.close()


def embedded_servers(settings: Settings) -> frozenset[ServerName]:
    """The servers that the settings do not place outside."""
    outside = {
        ServerName.POSTGRES: settings.postgres.url,
        ServerName.TEMPORAL: settings.temporal.address,
        ServerName.REDIS: settings.redis.url,
    }
    return frozenset(name for name, place in outside.items() if place is None)


def stack_paths(settings: Settings) -> StackPaths:
    """The data directory by its one true name, whatever links lead to it."""
    return StackPaths(data_dir=settings.data_dir.expanduser().resolve())


class _Client:
    def __init__(
        self,
        paths: StackPaths,
        wanted: frozenset[ServerName],
        temporal_namespace: str,
        linger_seconds: float,
    ) -> None:
        self._paths = paths
        self._wanted = wanted
        self._broken_until = 0.0
        self._options = (
            *("--data-dir", str(paths.data_dir), "--linger-seconds", str(linger_seconds)),
            *("--temporal-namespace", temporal_namespace),
        )

    async def join(self, lock: FileLock) -> StackState:
        """Become a client by the lock, then have everything wanted running."""
        while not lock.try_shared():  # noqa: ASYNC110  a supervisor withdraws: microseconds
            await asyncio.sleep(_POLL_SECONDS)
        return await self._have_running()

    async def _have_running(self) -> StackState:
        """Wait until everything wanted runs, launching a supervisor if need be."""
        self._tell_wanted()
        launch_lock, silent_deaths = FileLock(self._paths.launch_lock), 0
        self._broken_until = asyncio.get_running_loop().time() + _BROKEN_SECONDS
        try:
            while True:
                state = find_live_state(self._paths)
                if state is not None and self._has_all(state):
                    return state
                if state is None and launch_lock.try_exclusive():
                    if not find_live_state(self._paths) and not await self._launch():
                        silent_deaths += 1
                        self._check_patience(silent_deaths)
                    launch_lock.unlock()
                self._check_room()
                await asyncio.sleep(_POLL_SECONDS)
        finally:
            launch_lock.close()

    def _tell_wanted(self) -> None:
        for name in self._wanted:
            (self._paths.wanted_dir / name.value).touch()

    def _check_room(self) -> None:
        """Wait no longer for a supervisor that finds no room even for its state."""
        if asyncio.get_running_loop().time() < self._broken_until:
            return
        if full := find_want_of_room(self._paths.data_dir):
            raise full

    def _check_patience(self, silent_deaths: int) -> None:
        """Forgive a supervisor that was killed at its start, not one that always dies there."""
        if silent_deaths < _SILENT_DEATHS_MAX:
            return
        log = self._paths.log("supervisor")
        words = last_words(tail(log))
        message = f"The supervisor of the embedded servers ended at its start: {words}"
        raise UnavailableError("supervisor_failed", message, hint=f"Its log is {log}.")

    async def guard(self) -> None:
        """Launch the supervisor again whenever it was killed; after a stop in order, do not."""
        while True:
            await asyncio.sleep(_GUARD_SECONDS)
            if is_held(self._paths.supervisor_lock) or not self._paths.state_file.exists():
                continue
            _log.warning("stack_supervisor_killed", data_dir=str(self._paths.data_dir))
            try:
                await self._have_running()
            except (EverfillError, OSError) as error:
                _log.error("stack_revival_failed", problem=str(error))

    def _has_all(self, state: StackState) -> bool:
        found = [state.servers.get(name) for name in self._wanted]
        for server in found:
            if server is None or server.status is not ServerStatus.BROKEN:
                continue
            if asyncio.get_running_loop().time() >= self._broken_until:
                problem = server.problem or "it cannot be started"
                raise UnavailableError(
                    "server_broken", problem, hint="See `everfill doctor` for the cause."
                )
        return all(server and server.status is ServerStatus.RUNNING for server in found)

    async def _launch(self) -> bool:
        """Start a supervisor and hear how its start went; False where it died without a word."""
        self._tell_wanted()  # one that failed has forgotten it
        read_end, write_end = os.pipe()
        module = ("-P", "-m", "everfill.infra.stack")
        log = self._paths.log("supervisor")
        try:
            with log.open("ab") as output:
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, *module, *self._options, "--report-fd", str(write_end)),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    cwd=self._paths.data_dir,
                    pass_fds=(write_end,),
                    start_new_session=True,
                )
        finally:
            os.close(write_end)
        try:
            await process.wait()
            report = await _read_all(read_end)
        finally:
            os.close(read_end)
        _raise_failure(report)
        return report != b""


async def _read_all(descriptor: int) -> bytes:
    """What comes through a pipe until its other end is closed."""
    os.set_blocking(descriptor, False)
    loop, content = asyncio.get_running_loop(), b""
    while True:
        readable = asyncio.Event()
        loop.add_reader(descriptor, readable.set)
        try:
            await readable.wait()
        finally:
            loop.remove_reader(descriptor)
        chunk = os.read(descriptor, 65_536)
        if not chunk:
            return content
        content += chunk


def _raise_failure(report: bytes) -> None:
    """Raise what the supervisor reported, if its start failed."""
    facts: dict[str, Any] = json.loads(report) if report else {"ready": True}
    if not facts["ready"]:
        raise UnavailableError(facts["code"], facts["message"], hint=facts["hint"])


def _endpoints(settings: Settings, state: StackState | None) -> Endpoints:
    """The addresses of the settings where they give one, of the running stack otherwise."""
    found = {name: server.address for name, server in state.servers.items()} if state else {}
    postgres, redis = settings.postgres.url, settings.redis.url
    return Endpoints(
        postgres_url=postgres.get_secret_value() if postgres else found[ServerName.POSTGRES],
        temporal_address=settings.temporal.address or found[ServerName.TEMPORAL],
        redis_url=redis.get_secret_value() if redis else found[ServerName.REDIS],
    )


async def _in_time(
    joining: Coroutine[None, None, StackState], paths: StackPaths, seconds: float
) -> StackState:
    try:
        return await asyncio.wait_for(joining, seconds)
    except TimeoutError:
        message = f"The embedded servers in {paths.data_dir} were not ready within {seconds:g} s."
        hint = f"They may still be recovering; see `everfill doctor` and {paths.logs_dir}."
        raise UnavailableError("stack_start_timeout", message, hint=hint) from None
