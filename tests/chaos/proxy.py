"""A TCP proxy before a server: it cuts, holds and swallows what passes, at the test's word.

Everything it does to a connection is what a network may do. What it did is counted, so that a test
can tell that its faults took place.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from psycopg.conninfo import conninfo_to_dict, make_conninfo

CHUNK_BYTES = 65_536
COMMIT = b"COMMIT"
COMMITTED = b"COMMIT\0"  # how Postgres says that it was done
SHORT_BYTES = 64  # a shorter message is no statement worth cutting


@dataclass(eq=False)
class Link:
    """One client's connection and the one made for it to the server."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    swallows: bool = False

    def cut(self) -> None:
        """Reset both ends; what was under way is lost."""
        self.client.transport.abort()
        self.server.transport.abort()


@dataclass
class Proxy:
    """Listens on loopback while it is open, and passes everything on to one server."""

    host: str
    port: int = 0
    links: set[Link] = field(default_factory=set)
    done: Counter[str] = field(default_factory=Counter)
    own_port: int = 0
    _cuts_statement: bool = False
    _loses_commit: bool = False
    _flowing: asyncio.Event = field(default_factory=asyncio.Event)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _listener: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._flowing.set()
        self._listener = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.own_port = self._listener.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._listener
        self._listener.close()
        for link in self.links:
            link.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._listener.wait_closed()

    # -- faults -----------------------------------------------------------------------------------

    def cut_all(self) -> None:
        """Cut every connection at once."""
        for link in list(self.links):
            self._cut(link, "cut")

    def cut_one(self, chance: random.Random) -> None:
        """Cut one connection, whatever it is doing."""
        if self.links:
            links = sorted(self.links, key=lambda link: link.client.get_extra_info("peername"))
            self._cut(chance.choice(links), "cut")

    def cut_in_statement(self) -> None:
        """Let half of the next statement through, then cut its connection."""
        self._cuts_statement = True

    def lose_commit(self) -> None:
        """Let the next commit happen, and cut its connection before the client hears of it."""
        self._loses_commit = True

    def hold(self) -> None:
        """Be silent: connections stay open, and nothing comes through."""
        self.done["held"] += 1
        self._flowing.clear()

    def resume(self) -> None:
        """Pass on what was held, and what comes."""
        self._flowing.set()

    # -- traffic ----------------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            answers, server = await self._connect()
        except OSError:
            writer.transport.abort()
            return
        link = Link(writer, server)
        self.links.add(link)
        ways = [
            asyncio.create_task(self._pass_requests(link, reader)),
            asyncio.create_task(self._pass_answers(link, answers)),
        ]
        with suppress(asyncio.CancelledError):  # the proxy is closing
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        self.links.discard(link)
        link.cut()
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)  # whatever ended it: it is cut

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self.host.startswith("/"):
            return await asyncio.open_unix_connection(self.host)
        return await asyncio.open_connection(self.host, self.port)

    async def _pass_requests(self, link: Link, reader: asyncio.StreamReader) -> None:
        while chunk := await reader.read(CHUNK_BYTES):
            await self._flowing.wait()
            if self._cuts_statement and len(chunk) > SHORT_BYTES:
                self._cuts_statement = False
                link.server.write(chunk[: len(chunk) // 2])
                await link.server.drain()
                self._cut(link, "cut in a statement")
                return
            if self._loses_commit and COMMIT in chunk:
                self._loses_commit = False
                link.swallows = True
            link.server.write(chunk)
            await link.server.drain()
        link.cut()

    async def _pass_answers(self, link: Link, reader: asyncio.StreamReader) -> None:
        while chunk := await reader.read(CHUNK_BYTES):
            await self._flowing.wait()
            if link.swallows:
                if COMMITTED in chunk:
                    self._cut(link, "commit lost")
                    return
                continue
            link.client.write(chunk)
            await link.client.drain()
        link.cut()

    def _cut(self, link: Link, fault: str) -> None:
        self.done[fault] += 1
        self.links.discard(link)
        link.cut()


def postgres_proxy(url: str) -> Proxy:
    """A proxy before the Postgres of a URL."""
    given = conninfo_to_dict(url)
    host, port = str(given["host"]), int(given.get("port") or 5432)
    return Proxy(f"{host}/.s.PGSQL.{port}" if host.startswith("/") else host, port)


def postgres_url(url: str, proxy: Proxy) -> str:
    """The same database, by way of the proxy, in a form that every client understands."""
    return make_conninfo(
        url, host="127.0.0.1", port=proxy.own_port, sslmode="disable", gssencmode="disable"
    )


def redis_proxy(url: str) -> Proxy:
    """A proxy before the Redis of a URL."""
    given = urlsplit(url)
    if given.scheme == "unix":
        return Proxy(str(Path(given.path)))
    return Proxy(given.hostname or "127.0.0.1", given.port or 6379)


def redis_url(proxy: Proxy) -> str:
    """Redis, by way of the proxy."""
    return f"redis://127.0.0.1:{proxy.own_port}"
