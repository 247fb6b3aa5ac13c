"""What the supervisor asks of each of its servers."""

from __future__ import annotations

import socket
from contextlib import closing
from typing import Protocol

from everfill.infra.stack.children import Child, Program
from everfill.infra.stack.state import ServerName

__all__ = ["Server", "accepts", "free_port"]


class Server(Protocol):
    """One server as the supervisor sees it: prepared, started, asked, and told of failures."""

    @property
    def name(self) -> ServerName:
        """Which of the three it is."""
        ...

    @property
    def version(self) -> str:
        """The version of its program."""
        ...

    @property
    def address(self) -> str:
        """What a client connects to; changes only where a port was lost for good."""
        ...

    @property
    def ready_seconds_max(self) -> float:
        """How long a start may take before it counts as failed."""
        ...

    async def prepare(self) -> Program:
        """Clear what a former life left behind, and say what to start."""
        ...

    async def is_ready(self, child: Child) -> bool:
        """Whether clients are served now; asked again and again after a start."""
        ...

    def heed(self, printed: str) -> None:
        """Learn from a failed start (the tail of its log) what to do otherwise at the next."""
        ...


def free_port() -> int:
    """A loopback port that nobody had a moment ago."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def accepts(port: int) -> bool:
    """Whether something on loopback takes connections at the port."""
    with closing(socket.socket()) as probe:
        probe.settimeout(0.2)
        return probe.connect_ex(("127.0.0.1", port)) == 0
