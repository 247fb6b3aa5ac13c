"""One supervised server: started until it answers, watched, and started again when it dies."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog

from everfill.infra.stack.children import Child, last_words, start, tail
from everfill.infra.stack.server import Server
from everfill.infra.stack.state import ServerState, ServerStatus
from everfill.kernel.errors import EverfillError, UnavailableError

__all__ = ["Runner"]

_log = structlog.get_logger(__name__)

_FIRST_TRIES: Final = 5
"""Tries before a first start is given up; the second failure already changes port or file."""
_BROKEN_AFTER_TRIES: Final = 3
"""Failed restarts after which the server is reported as broken; it is tried on and on."""
_DELAY_FIRST_SECONDS: Final = 0.1
_DELAY_MAX_SECONDS: Final = 5.0
_POLL_SECONDS: Final = 0.01


class Runner:
    """Keeps one server running.

    Args:
        server: The server.
        log: Where its output goes.
        changed: Called whenever `state` would answer differently.
    """

    def __init__(self, server: Server, log: Path, changed: Callable[[], None]) -> None:
        self._server = server
        self._log = log
        self._changed = changed
        self._child: Child | None = None
        self._watch: asyncio.Task[None] | None = None
        self._status = ServerStatus.RESTARTING
        self._restarts = 0
        self._problem: str | None = None

    @property
    def state(self) -> ServerState:
        """What to publish."""
        is_running = self._status is ServerStatus.RUNNING
        return ServerState(
            status=self._status,
            address=self._server.address,
            version=self._server.version,
            pid=self._child.pid if self._child and is_running else None,
            restarts=self._restarts,
            problem=self._problem,
        )

    async def start(self) -> None:
        """Start it and go on watching it.

        Raises:
            EverfillError: Where it cannot be started; the tries are bounded.
        """
        for attempt in range(1, _FIRST_TRIES + 1):
            try:
                await self._try()
                break
            except UnavailableError as error:
                self._note(error, attempt)
                if attempt == _FIRST_TRIES:
                    raise
                await asyncio.sleep(_delay_seconds(attempt))
        self._watch = asyncio.create_task(self._keep_alive())

    async def stop(self) -> None:
        """Stop watching, then stop the server."""
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
        if self._child is not None:
            await self._child.stop()

    async def _keep_alive(self) -> None:
        while True:
            assert self._child is not None
            code = await self._child.wait()
            self._restarts += 1
            _log.warning("server_died", server=self._server.name, exit_code=code)
            self._turn(ServerStatus.RESTARTING, None)
            await self._restart()

    async def _restart(self) -> None:
        attempt = 0
        while True:
            attempt += 1
            try:
                return await self._try()
            except (EverfillError, OSError) as error:
                self._note(error, attempt)
            if attempt >= _BROKEN_AFTER_TRIES:
                self._turn(ServerStatus.BROKEN, self._problem)
            await asyncio.sleep(_delay_seconds(attempt))

    async def _try(self) -> None:
        program = await self._server.prepare()
        self._child = await start(program, self._log)
        try:
            await asyncio.wait_for(self._until_ready(self._child), self._server.ready_seconds_max)
        except (TimeoutError, UnavailableError) as error:
            await self._child.stop()
            self._server.heed(tail(self._log))
            raise _start_failed(self._server, self._log, error) from error
        except asyncio.CancelledError:
            await self._child.stop()
            raise
        _log.info("server_ready", server=self._server.name, pid=self._child.pid)
        self._turn(ServerStatus.RUNNING, None)

    async def _until_ready(self, child: Child) -> None:
        while not await self._server.is_ready(child):
            if child.has_ended:
                raise UnavailableError("server_ended", "It ended by itself.")
            await asyncio.sleep(_POLL_SECONDS)

    def _note(self, error: Exception, attempt: int) -> None:
        self._problem = str(error)
        _log.warning(
            "server_start_failed", server=self._server.name, attempt=attempt, problem=str(error)
        )

    def _turn(self, status: ServerStatus, problem: str | None) -> None:
        self._status, self._problem = status, problem
        self._changed()


def _delay_seconds(attempt: int) -> float:
    return min(_DELAY_FIRST_SECONDS * 2 ** (attempt - 1), _DELAY_MAX_SECONDS)


def _start_failed(server: Server, log: Path, error: Exception) -> UnavailableError:
    """The failure in the server's own last words."""
    how = "did not answer in time" if isinstance(error, TimeoutError) else "ended at its start"
    message = f"The embedded {server.name} server {how}: {last_words(tail(log))}"
    return UnavailableError("server_start_failed", message, hint=f"Its log is {log}.")
