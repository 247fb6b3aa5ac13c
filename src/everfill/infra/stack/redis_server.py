"""The embedded bus: Valkey without persistence, on a socket only this user can reach."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Final

from everfill.infra.stack.binaries import Binary
from everfill.infra.stack.children import Child, Program, StopStep
from everfill.infra.stack.state import ServerName

__all__ = ["RedisServer"]

_MEMORY_MAX: Final = "256mb"
_PONG: Final = b"+PONG\r\n"


class RedisServer:
    """Valkey.

    It holds nothing that cannot be lost, so at the limit of its memory it drops the least
    recently used keys instead of refusing writes.

    Args:
        binary: The program.
        socket_dir: A private directory whose path is short enough for a socket.
        run_dir: Its working directory; it writes nothing there.
    """

    name = ServerName.REDIS
    ready_seconds_max = 20.0

    def __init__(self, *, binary: Binary, socket_dir: Path, run_dir: Path) -> None:
        self._binary = binary
        self._socket = socket_dir / "redis.sock"
        self._run_dir = run_dir

    @property
    def version(self) -> str:
        """The version of the wheel."""
        return self._binary.version

    @property
    def address(self) -> str:
        """A URL for Redis clients."""
        return f"unix://{self._socket}"

    async def prepare(self) -> Program:
        """Remove the socket of a former life."""
        self._socket.unlink(missing_ok=True)
        options = {
            "port": "0",
            "unixsocket": str(self._socket),
            "unixsocketperm": "700",
            "dir": str(self._run_dir),
            "save": "",
            "appendonly": "no",
            "daemonize": "no",
            "logfile": "",
            "maxmemory": _MEMORY_MAX,
            "maxmemory-policy": "allkeys-lru",
        }
        flags = [part for name, value in options.items() for part in (f"--{name}", value)]
        return Program(
            arguments=(str(self._binary.path), *flags),
            stop_steps=(StopStep(signal=signal.SIGTERM, patience_seconds=5.0),),
        )

    async def is_ready(self, child: Child) -> bool:
        """Whether it answers a ping."""
        del child
        try:
            reader, writer = await asyncio.open_unix_connection(self._socket)
        except OSError:
            return False
        try:
            writer.write(b"PING\r\n")
            return await reader.readline() == _PONG
        except OSError:
            return False
        finally:
            writer.close()

    def heed(self, printed: str) -> None:
        """Nothing to learn: it has neither a port nor a file."""
        del printed
