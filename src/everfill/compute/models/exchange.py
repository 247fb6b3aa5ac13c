"""The one HTTP call to a provider, over aiohttp: no retries, which are the queue's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import aiohttp
import msgspec

from everfill.compute.models.connections import Connection
from everfill.kernel import limits
from everfill.tables.values import JsonValue

__all__ = ["Answer", "ClosedError", "Exchange", "TooLargeError", "UnreachableError"]

_UNBOUNDED: Final = 0
"""A worker's slots bound the calls; the pool must never be what waits."""
_IDLE_SECONDS: Final = 30.0
_OK: Final = 200


class Answer(NamedTuple):
    """What came back."""

    status: int
    headers: Mapping[str, str]
    """By name, lower-case."""
    body: bytes

    @property
    def ok(self) -> bool:
        """Whether it is a success."""
        return _OK <= self.status < _OK + 100


class UnreachableError(Exception):
    """No connection, or one that broke off."""


class ClosedError(Exception):
    """The connections were closed: the worker ends."""


class TooLargeError(Exception):
    """An answer beyond what is kept in memory."""


class Exchange:
    """Connections to providers, of one event loop; made at the first call, closed once."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None
        self._closed = False

    async def post(
        self, connection: Connection, path: str, body: Mapping[str, JsonValue]
    ) -> Answer:
        """Send JSON to a path of a connection.

        Raises:
            UnreachableError: There was no whole answer.
            TooLargeError: It has more than `limits.MODEL_ANSWER_BYTES_MAX`.
            ClosedError: `aclose` was called, before it or meanwhile.
        """
        headers = {
            "content-type": "application/json",
            **connection.dialect.headers(connection.key),
            **connection.headers,
        }
        try:
            async with self._open().post(
                f"{connection.base_url}{path}",
                data=msgspec.json.encode(body),
                headers=headers,
                allow_redirects=False,
            ) as response:
                data = await _read(response)
                told = {name.lower(): value for name, value in response.headers.items()}
                return Answer(response.status, told, data)
        except (aiohttp.ClientError, OSError) as error:
            if self._closed:
                raise ClosedError from None
            raise UnreachableError(str(error) or type(error).__name__) from None

    async def aclose(self) -> None:
        """Close every connection; whoever still calls is told that there is none."""
        self._closed = True
        if self._session:
            await self._session.close()
            self._session = None

    def _open(self) -> aiohttp.ClientSession:
        if self._closed:
            raise ClosedError
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=_UNBOUNDED, keepalive_timeout=_IDLE_SECONDS)
            self._session = aiohttp.ClientSession(
                connector=connector,
                timeout=aiohttp.ClientTimeout(total=None),  # whoever asks bounds the whole
                trust_env=True,
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session


async def _read(response: aiohttp.ClientResponse) -> bytes:
    """The body, up to a bound."""
    parts: list[bytes] = []
    size = 0
    async for part in response.content.iter_any():
        size += len(part)
        if size > limits.MODEL_ANSWER_BYTES_MAX:
            raise TooLargeError
        parts.append(part)
    return b"".join(parts)
