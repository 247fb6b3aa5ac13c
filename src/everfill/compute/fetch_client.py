"""One page over HTTP, within limits: an `HttpPage`, or what the cell gets instead."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from importlib.metadata import version
from typing import Final

import httpx2

from everfill.compute.fetch_guard import AddressGuard, GuardedTransport
from everfill.compute.protocol import Failure, NotFound
from everfill.kernel import limits
from everfill.kernel.config import FetchSettings
from everfill.kernel.errors import ForbiddenError

__all__ = ["FetchClient", "HttpPage", "read_url"]

_CONNECTIONS_MAX: Final = 200
_PASSING_STATUS: Final = frozenset({408, 425, 429})
_GONE_STATUS: Final = frozenset({404, 410})
_OK: Final = range(200, 300)
_SERVER_ERROR: Final = 500
_HEADERS: Final = {
    "User-Agent": f"everfill/{version('everfill')}",
    "Accept": "text/html,application/xhtml+xml,application/pdf;q=0.9,*/*;q=0.8",
    "Accept-Encoding": "gzip, deflate",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpPage:
    """What a server sent at last."""

    status: int
    url: str
    mime: str
    charset: str | None
    body: bytes


@dataclass(slots=True)
class FetchClient:
    """The connections of one event loop, for each set of limits in use."""

    _clients: dict[FetchSettings, httpx2.AsyncClient] = field(
        default_factory=dict[FetchSettings, httpx2.AsyncClient]
    )

    async def get(self, text: str, settings: FetchSettings) -> HttpPage | NotFound | Failure:
        """Fetch the page at a URL; every fault is a result, only cancellation passes through."""
        url = read_url(text)
        if isinstance(url, Failure):
            return url
        try:
            async with asyncio.timeout(settings.timeout_seconds):
                return await self._get(url, settings)
        except (TimeoutError, ForbiddenError, httpx2.HTTPError, httpx2.InvalidURL) as error:
            return _explain(error, settings)

    async def aclose(self) -> None:
        """Close every connection."""
        clients = list(self._clients.values())
        self._clients.clear()
        for client in clients:
            await client.aclose()

    async def _get(self, url: httpx2.URL, settings: FetchSettings) -> HttpPage | NotFound | Failure:
        async with self._client(settings).stream("GET", url) as response:
            if response.status_code not in _OK:
                return _refused(response)
            body = bytearray()
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > settings.size_max_bytes:
                    most = f"{settings.size_max_bytes:,}"
                    return _failure("too_large", f"The page has more than {most} bytes.")
            return HttpPage(
                status=response.status_code,
                url=str(response.url),
                mime=response.headers.get("content-type", "").partition(";")[0].strip().lower(),
                charset=response.charset_encoding,
                body=bytes(body),
            )

    def _client(self, settings: FetchSettings) -> httpx2.AsyncClient:
        if (client := self._clients.get(settings)) is None:
            guard = AddressGuard(settings.allow_private)
            client = self._clients[settings] = httpx2.AsyncClient(
                transport=GuardedTransport(guard, connections_max=_CONNECTIONS_MAX),
                headers=_HEADERS,
                follow_redirects=True,
                max_redirects=settings.redirects_max,
                timeout=settings.timeout_seconds,
                trust_env=False,
            )
        return client


def read_url(text: str) -> httpx2.URL | Failure:
    """The URL in a cell's text; a bare host name counts as https."""
    given = text.strip()
    try:
        url = httpx2.URL(given if "://" in given else f"https://{given}")
    except httpx2.InvalidURL as error:
        return _failure("url_invalid", f"{given!r} is no URL: {error}")
    if url.scheme not in {"http", "https"} or not url.host or " " in given:
        return _failure("url_invalid", f"{given!r} is not the address of a web page.")
    if "://" not in given and ("." not in url.host or url.userinfo):
        return _failure("url_invalid", f"{given!r} is no URL; it should begin with https://.")
    return url


def _refused(response: httpx2.Response) -> NotFound | Failure:
    """A page that the server did not give."""
    status = f"{response.status_code} {response.reason_phrase}".strip()
    if response.status_code in _GONE_STATUS:
        return NotFound(reason=f"the server has no such page ({status})")
    if response.status_code in _PASSING_STATUS or response.status_code >= _SERVER_ERROR:
        code = "rate_limited" if response.status_code == 429 else "http_error"  # noqa: PLR2004 - its name is on the left
        return Failure(
            code=code,
            message=f"The server answered {status}.",
            transient=True,
            retry_after_seconds=_retry_after(response.headers.get("retry-after")),
        )
    return _failure("http_error", f"The server answered {status}.")


def _retry_after(value: str | None) -> float | None:
    """Seconds from now, of either form of the header; None where it says nothing readable."""
    if value is None:
        return None
    if value.strip().isdigit():
        return float(value)
    try:
        until = parsedate_to_datetime(value)
    except ValueError:
        return None
    return max(0.0, (until - datetime.now(UTC)).total_seconds())


def _explain(error: Exception, settings: FetchSettings) -> Failure:
    """The failure that an exception makes of the cell; the first family that fits."""
    seconds = f"{settings.timeout_seconds:g}"
    if isinstance(error, ForbiddenError):
        return _failure(error.code, str(error))
    if isinstance(error, TimeoutError | httpx2.TimeoutException):
        return _failure("timeout", f"No whole page within {seconds} s.", transient=True)
    if isinstance(error, httpx2.TooManyRedirects):
        return _failure("too_many_redirects", f"More than {settings.redirects_max} redirects.")
    if isinstance(error, httpx2.DecodingError):
        return _failure("page_broken", f"The page's compression is broken: {error}")
    if isinstance(error, httpx2.UnsupportedProtocol | httpx2.InvalidURL):
        return _failure("url_invalid", f"It leads to an address that is no web page: {error}")
    return _explain_network(error)


def _explain_network(error: Exception) -> Failure:
    for cause in _causes(error):
        if isinstance(cause, socket.gaierror):
            message = f"The host name does not resolve: {cause.strerror}."
            return _failure("host_unknown", message, transient=cause.errno == socket.EAI_AGAIN)
        if isinstance(cause, ssl.SSLCertVerificationError):
            message = f"The server's certificate is bad: {cause.verify_message}."
            return _failure("tls_invalid", message)
    words = str(error) or type(error).__name__
    return _failure("connection_failed", f"The connection failed: {words}.", transient=True)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _failure(code: str, message: str, *, transient: bool = False) -> Failure:
    return Failure(
        code=code, message=message[: limits.ERROR_MESSAGE_CHARS_MAX], transient=transient
    )
