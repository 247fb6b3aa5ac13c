"""The `fetch` kind against a web server of our own on loopback."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
import pytest_asyncio

from everfill.compute.fetch import FetchKind
from everfill.compute.protocol import (
    ComputeContext,
    ComputeRequest,
    ComputeResult,
    Failure,
    NotFound,
    Value,
)
from everfill.kernel.config import FetchSettings, Settings
from everfill.tables.types import TEXT, ColumnType, TypeName

pytestmark = pytest.mark.asyncio(loop_scope="module")

JSON = ColumnType(name=TypeName.JSON)
PAGE = """<!doctype html><html><head><title>Tide &amp; time</title></head><body><article>
<h1>Tides</h1><p>High water at the harbour comes about fifty minutes later each day, as the
moon moves on along its path while the earth turns below it.</p></article></body></html>"""
SENTENCE = "High water at the harbour"


@dataclass(slots=True)
class Web:
    """A web server: each path has a function that gives status, headers and body."""

    port: int = 0
    pages: dict[str, Callable[[], tuple[int, dict[str, str], bytes]]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    hang: set[str] = field(default_factory=set)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def put(self, path: str, body: bytes | str, status: int = 200, **headers: str) -> None:
        data = body.encode() if isinstance(body, str) else body
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.pages[path] = lambda: (status, named, data)

    def url(self, path: str = "/", host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            path = head.split(" ")[1]
            self.asked.append(path)
            if path in self.hang:
                await asyncio.Event().wait()
            status, headers, body = self.pages.get(path, lambda: (404, {}, b"no"))()
            headers = {"content-length": str(len(body)), "connection": "close", **headers}
            lines = [f"HTTP/1.1 {status} Word", *(f"{k}: {v}" for k, v in headers.items())]
            writer.write("\r\n".join([*lines, "", ""]).encode() + body)
            await writer.drain()
        self.tasks.discard(task)
        writer.close()


@pytest_asyncio.fixture(loop_scope="module")
async def web() -> AsyncIterator[Web]:
    made = Web()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    yield made
    server.close()
    for task in made.tasks:
        task.cancel()
    await asyncio.gather(*made.tasks, return_exceptions=True)
    await server.wait_closed()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def kind() -> AsyncIterator[FetchKind]:
    made = FetchKind()
    yield made
    await made.aclose()


async def fetch(
    kind: FetchKind,
    url: str,
    output_type: ColumnType = JSON,
    *,
    part: str | None = None,
    allow: tuple[str, ...] = ("127.0.0.0/8",),
    **limits: float,
) -> ComputeResult:
    settings = Settings(fetch=FetchSettings(allow_private=allow, **limits))
    request = ComputeRequest(
        text=url,
        inputs={},
        source=url,
        output_type=output_type,
        options={} if part is None else {"part": part},
    )
    (result,) = await kind.compute([request], ComputeContext(settings=settings, files=None))
    return result


def page(result: ComputeResult) -> dict[str, object]:
    assert isinstance(result, Value), result
    assert isinstance(result.value, dict)
    return result.value


def failure(result: ComputeResult) -> Failure:
    assert isinstance(result, Failure), result
    return result


async def test_a_page_has_status_final_address_title_text_and_mime(
    kind: FetchKind, web: Web
) -> None:
    web.put("/", "", 302, location="/tides")
    web.put("/tides", PAGE, content_type="text/html; charset=utf-8")

    value = page(await fetch(kind, web.url("/")))

    assert value["status"] == 200
    assert value["url"] == web.url("/tides")
    assert value["title"] == "Tide & time"
    assert value["mime"] == "text/html"
    assert SENTENCE in str(value["text"])
    assert set(value) == {"status", "url", "title", "text", "mime"}


async def test_a_text_column_holds_the_pages_text(kind: FetchKind, web: Web) -> None:
    web.put("/", PAGE, content_type="text/html")

    result = await fetch(kind, web.url(), TEXT)

    assert isinstance(result, Value)
    assert SENTENCE in str(result.value)
    assert result == await fetch(kind, web.url(), JSON, part="text")


async def test_the_same_page_gives_the_same_value(kind: FetchKind, web: Web) -> None:
    web.put("/", PAGE, content_type="text/html")

    assert await fetch(kind, web.url()) == await fetch(kind, web.url())


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        ("<title>Größe</title><p>Größe".encode("cp1252"), "text/html; charset=iso-8859-1"),
        ("<title>Größe</title><p>Größe".encode(), "text/html"),
        ("<meta charset=windows-1252><title>Größe</title>x".encode("cp1252"), "text/html"),
        ("\ufeff<title>Größe</title>x".encode("utf-16-le"), "text/html"),
        (b"\xef\xbb\xbf" + "<title>Größe</title>x".encode(), "text/html; charset=latin-1"),
        ("<title>Größe</title>x".encode(), "text/html; charset=ascii"),
        ("<title>Größe</title>x".encode(), "text/html; charset=no-such-thing"),
    ],
)
async def test_the_charset_is_found_wherever_it_is_told(
    kind: FetchKind, web: Web, body: bytes, content_type: str
) -> None:
    web.put("/", body, content_type=content_type)

    assert page(await fetch(kind, web.url()))["title"] == "Größe"


async def test_a_page_without_readable_text_has_null_for_its_text(
    kind: FetchKind, web: Web
) -> None:
    web.put("/dot.png", b"\x89PNG\r\n\x1a\n\x00\x00", content_type="image/png")

    value = page(await fetch(kind, web.url("/dot.png")))

    assert (value["text"], value["mime"]) == (None, "image/png")
    assert failure(await fetch(kind, web.url("/dot.png"), TEXT)).code == "format_unsupported"


async def test_json_and_plain_text_come_as_they_are(kind: FetchKind, web: Web) -> None:
    web.put("/a.json", '{"a": "é"}', content_type="application/json")

    assert page(await fetch(kind, web.url("/a.json")))["text"] == '{"a": "é"}'


@pytest.mark.parametrize("status", [404, 410])
async def test_a_page_that_is_gone_is_not_found(kind: FetchKind, web: Web, status: int) -> None:
    web.put("/", "gone", status)

    result = await fetch(kind, web.url())

    assert isinstance(result, NotFound)
    assert str(status) in result.reason


@pytest.mark.parametrize(
    ("status", "code", "transient"),
    [
        (429, "rate_limited", True),
        (500, "http_error", True),
        (503, "http_error", True),
        (401, "http_error", False),
        (403, "http_error", False),
        (451, "http_error", False),
    ],
)
async def test_a_refusal_carries_its_status_and_says_whether_it_passes(
    kind: FetchKind, web: Web, status: int, code: str, transient: bool
) -> None:
    web.put("/", "no", status)

    refused = failure(await fetch(kind, web.url()))

    assert (refused.code, refused.transient) == (code, transient)
    assert str(status) in refused.message


async def test_retry_after_is_read_as_seconds_and_as_a_date(kind: FetchKind, web: Web) -> None:
    web.put("/seconds", "", 503, retry_after="120")
    until = datetime.now(UTC) + timedelta(hours=1)
    web.put("/date", "", 429, retry_after=format_datetime(until, usegmt=True))
    web.put("/nonsense", "", 429, retry_after="soon")

    assert failure(await fetch(kind, web.url("/seconds"))).retry_after_seconds == 120
    seconds = failure(await fetch(kind, web.url("/date"))).retry_after_seconds
    assert seconds is not None
    assert 3_500 < seconds <= 3_600
    assert failure(await fetch(kind, web.url("/nonsense"))).retry_after_seconds is None


async def test_a_page_over_the_size_limit_is_not_read_to_its_end(kind: FetchKind, web: Web) -> None:
    web.put("/", b"x" * 50_000, content_type="text/plain")
    web.put("/zip", gzip.compress(b"x" * 9_000_000), content_encoding="gzip")

    assert failure(await fetch(kind, web.url(), size_max_bytes=49_999)).code == "too_large"
    assert failure(await fetch(kind, web.url("/zip"), size_max_bytes=50_000)).code == "too_large"
    assert page(await fetch(kind, web.url(), size_max_bytes=50_000))["text"] == "x" * 50_000


async def test_a_page_that_takes_too_long_is_a_passing_failure(kind: FetchKind, web: Web) -> None:
    web.hang.add("/")

    slow = failure(await fetch(kind, web.url(), timeout_seconds=0.2))

    assert (slow.code, slow.transient) == ("timeout", True)


async def test_redirects_are_followed_up_to_their_limit(kind: FetchKind, web: Web) -> None:
    web.put("/2", PAGE, content_type="text/html")
    web.put("/1", "", 301, location="/2")
    web.put("/0", "", 307, location="/1")
    web.put("/round", "", 302, location="/round")

    assert page(await fetch(kind, web.url("/0"), redirects_max=2))["url"] == web.url("/2")
    assert failure(await fetch(kind, web.url("/0"), redirects_max=1)).code == "too_many_redirects"
    assert failure(await fetch(kind, web.url("/round"))).code == "too_many_redirects"


async def test_a_redirect_to_another_scheme_is_refused(kind: FetchKind, web: Web) -> None:
    web.put("/", "", 302, location="file:///etc/passwd")

    refused = failure(await fetch(kind, web.url()))

    assert (refused.code, refused.transient) == ("url_invalid", False)


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "localhost",
        "2130706433",
        "0x7f000001",
        "127.1",
        "[::ffff:7f00:1]",
    ],
)
async def test_a_private_address_is_refused_however_it_is_written(
    kind: FetchKind, web: Web, host: str
) -> None:
    web.put("/", PAGE)

    refused = failure(await fetch(kind, web.url(host=host), allow=()))

    assert (refused.code, refused.transient) == ("address_forbidden", False)
    assert "EVERFILL_FETCH__ALLOW_PRIVATE" in refused.message
    assert web.asked == []


async def test_an_address_written_in_octal_is_refused(kind: FetchKind, web: Web) -> None:
    refused = failure(await fetch(kind, web.url(host="0177.0.0.1"), allow=()))

    assert refused.code in {"url_invalid", "address_forbidden"}
    assert web.asked == []


async def test_a_redirect_to_a_private_address_is_refused_before_it_is_asked(
    kind: FetchKind, web: Web
) -> None:
    web.put("/", "", 302, location=web.url("/secret", host="127.0.0.2"))

    refused = failure(await fetch(kind, web.url(), allow=("127.0.0.1",)))

    assert refused.code == "address_forbidden"
    assert web.asked == ["/"]


async def test_a_host_may_be_let_through_by_name(kind: FetchKind, web: Web) -> None:
    web.put("/", PAGE, content_type="text/html")

    result = await fetch(kind, web.url(host="localhost"), allow=("LOCALHOST",))

    assert page(result)["title"] == "Tide & time"


async def test_a_name_is_resolved_once_and_the_checked_address_is_the_one_spoken_to(
    kind: FetchKind, web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    web.put("/", PAGE, content_type="text/html")
    resolved: list[str] = []
    resolve = asyncio.get_running_loop().getaddrinfo

    async def rebinding(host: str, port: int, **hints: int) -> object:
        resolved.append(host)
        address = "127.0.0.1" if resolved.count(host) == 1 else "127.0.0.99"
        return await resolve(address if host == "rebind.example" else host, port, **hints)

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", rebinding)

    result = await fetch(kind, web.url(host="rebind.example"), allow=("127.0.0.1",))

    assert page(result)["status"] == 200
    assert resolved.count("rebind.example") == 1


async def test_one_private_address_among_public_ones_refuses_the_host(
    kind: FetchKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def mixed(_: str, port: int, **__: int) -> object:
        return [(2, 1, 6, "", (address, port)) for address in ("93.184.216.34", "10.0.0.1")]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", mixed)

    refused = failure(await fetch(kind, "http://mixed.example/", allow=()))

    assert refused.code == "address_forbidden"
    assert "10.0.0.1" in refused.message


@pytest.mark.parametrize(
    "text", ["ftp://example.org/", "file:///etc/passwd", "hello", "a b.c", "http://"]
)
async def test_what_is_no_web_address_is_told_so(kind: FetchKind, text: str) -> None:
    wrong = failure(await fetch(kind, text))

    assert (wrong.code, wrong.transient) == ("url_invalid", False)


async def test_an_empty_cell_has_no_page(kind: FetchKind) -> None:
    assert await fetch(kind, "  ") == NotFound(reason="no URL")


async def test_a_server_that_is_not_there_is_a_passing_failure(kind: FetchKind, web: Web) -> None:
    server = await asyncio.start_server(web.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()

    gone = failure(await fetch(kind, f"http://127.0.0.1:{port}/"))

    assert (gone.code, gone.transient) == ("connection_failed", True)
