# ruff: noqa: RUF001 - other scripts' marks are meant
"""The `extract_text` kind and its reader processes."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
import pytest_asyncio

from cases.documents import make_docx, make_pdf, make_pptx, make_xlsx, make_zip_bomb
from everfill.compute.extract_pool import ExtractPool
from everfill.compute.extract_result import Extract
from everfill.compute.extract_text import ExtractTextKind
from everfill.compute.pages import split_pages
from everfill.compute.protocol import (
    ComputeContext,
    ComputeRequest,
    ComputeResult,
    Failure,
    NotFound,
    Value,
)
from everfill.kernel.config import Settings
from everfill.kernel.errors import NotFoundError
from everfill.tables.types import TEXT

pytestmark = pytest.mark.asyncio(loop_scope="module")

OLD_OFFICE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"


class Files:
    """Files in memory."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}

    async def get(self, sha256: str) -> bytes:
        if sha256 not in self.kept:
            raise NotFoundError("blob_missing", f"No file {sha256}.")
        return self.kept[sha256]

    async def put(self, data: bytes) -> str:
        sha256 = hashlib.sha256(data).hexdigest()
        self.kept[sha256] = data
        return sha256


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def kind() -> AsyncIterator[ExtractTextKind]:
    made = ExtractTextKind()
    yield made
    await made.aclose()


@pytest_asyncio.fixture(loop_scope="module")
async def pool() -> AsyncIterator[ExtractPool]:
    made = ExtractPool()
    yield made
    await made.aclose()


async def read(kind: ExtractTextKind, data: bytes, name: str = "", mime: str = "") -> ComputeResult:
    files = Files()
    sha256 = await files.put(data)
    file = {"name": name, "mime": mime, "size_bytes": len(data), "sha256": sha256}
    request = ComputeRequest(
        text=name, inputs={"file": file}, source=file, output_type=TEXT, options={}
    )
    (result,) = await kind.compute([request], ComputeContext(settings=Settings(), files=files))
    return result


def text(result: ComputeResult) -> str:
    assert isinstance(result, Value), result
    assert isinstance(result.value, str)
    return result.value


async def test_a_pdf_keeps_its_pages(kind: ExtractTextKind) -> None:
    data = make_pdf(["First page.", "", "Third page."])

    value = text(await read(kind, data, "a.pdf", "application/pdf"))

    assert value == "[page 1]\nFirst page.\n\f[page 2]\n\n\f[page 3]\nThird page."
    assert split_pages(value) == [(1, "First page."), (2, ""), (3, "Third page.")]


async def test_a_word_document_keeps_the_order_of_paragraphs_and_tables(
    kind: ExtractTextKind,
) -> None:
    data = make_docx(["One.", "Two."], [["Name", "Age"], ["Ada", "36"]])

    assert text(await read(kind, data, "a.docx")) == "One.\nTwo.\nName\tAge\nAda\t36"


async def test_slides_are_pages_with_their_notes(kind: ExtractTextKind) -> None:
    data = make_pptx([("Plan", "Build it"), ("End", "Thanks")], notes="Speak slowly.")

    value = text(await read(kind, data, "a.pptx"))

    assert value == (
        "[page 1]\nPlan\nBuild it\nSpeak slowly.\n\f[page 2]\nEnd\nThanks\nSpeak slowly."
    )


async def test_sheets_are_pages_with_their_rows(kind: ExtractTextKind) -> None:
    data = make_xlsx({"Prices": [["item", "euro"], ["tea", 3], ["cake", 4.5]], "Empty": []})

    value = text(await read(kind, data, "a.xlsx"))

    assert value == "[page 1]\nPrices\nitem\teuro\ntea\t3\ncake\t4.5\n\f[page 2]\nEmpty"


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252", "gb18030", "shift_jis", "cp1251"]
)
async def test_plain_text_is_read_whatever_its_encoding(
    kind: ExtractTextKind, encoding: str
) -> None:
    words = {
        "gb18030": "今天的天气很好，我们一起去公园散步。晚上回家以后，我想看一本新书。" * 3,
        "shift_jis": "今日は天気がいいので、公園を散歩します。夜は新しい本を読みたいです。" * 3,
        "cp1251": "Сегодня хорошая погода, и мы пойдём гулять в парк. Вечером я буду читать." * 3,
    }.get(encoding, "Der Fluß führt Wasser über die Äcker; größere Mühlen stehen still.")

    assert text(await read(kind, words.encode(encoding), "a.txt", "text/plain")) == words


async def test_a_page_keeps_its_text_and_not_its_scripts(kind: ExtractTextKind) -> None:
    data = b"<html><head><script>let x = 1</script></head><body><p>Only this.</p></body></html>"

    assert text(await read(kind, data, "a.html", "text/html")) == "Only this."


LONG = "<p>The town council of Rye voted to keep the ferry running through the winter months.</p>"


@pytest.mark.parametrize(
    "page",
    [
        f"<title>The ferry stays | Rye</title><body><h1>The ferry stays</h1>{LONG * 4}</body>",
        f"<title>The ferry stays</title><body>{LONG * 4}</body>",
        f"<body><h1>Rye</h1><main><h1>The ferry\nstays</h1>{LONG * 4}</main></body>",
    ],
)
async def test_a_page_keeps_what_it_is_called(kind: ExtractTextKind, page: str) -> None:
    value = text(await read(kind, page.encode(), "a.html", "text/html"))

    assert value.startswith("The ferry stays\n")
    assert value.count("The ferry stays") == 1
    assert "through the winter months." in value


async def test_a_text_input_is_returned_as_it_is_and_a_page_is_read(kind: ExtractTextKind) -> None:
    context = ComputeContext(settings=Settings(), files=Files())
    plain, page = [
        ComputeRequest(text=source, inputs={}, source=source, output_type=TEXT, options={})
        for source in ("1 < 2 & <b>", "<!DOCTYPE html><body><p>Hello.</p></body>")
    ]

    assert await kind.compute([plain, page], context) == [
        Value(value="1 < 2 & <b>"),
        Value(value="Hello."),
    ]


async def test_a_file_without_an_extension_is_known_by_its_bytes(kind: ExtractTextKind) -> None:
    assert "Hello." in text(await read(kind, make_pdf(["Hello."])))
    assert text(await read(kind, make_docx(["Hello."]), "", "application/octet-stream")) == "Hello."
    assert text(await read(kind, b"Hello.")) == "Hello."


async def test_a_scan_without_text_is_not_found(kind: ExtractTextKind) -> None:
    assert await read(kind, make_pdf(["", ""])) == NotFound(reason="no text on its pages")
    assert await read(kind, b" \n", "a.txt") == NotFound(reason="no text in it")
    assert await read(kind, make_xlsx({"Sheet": []})) == NotFound(reason="no text in it")


@pytest.mark.parametrize(
    ("data", "name", "code"),
    [
        (make_pdf(["Secret."], password="sesame"), "a.pdf", "file_encrypted"),  # noqa: S106 - a test's
        (OLD_OFFICE + "EncryptedPackage".encode("utf-16-le"), "a.docx", "file_encrypted"),
        (OLD_OFFICE + bytes(600), "a.doc", "format_unsupported"),
        (OLD_OFFICE + "Workbook".encode("utf-16-le"), "a.xls", "file_broken"),
        (b"%PDF-1.7 and then nonsense", "a.pdf", "file_broken"),
        (b"no pdf at all", "a.pdf", "file_broken"),
        (make_pdf(["Cut."])[:200], "a.pdf", "file_broken"),
        (make_docx(["Cut."])[:2_000], "a.docx", "file_broken"),
        (make_zip_bomb(), "a.docx", "too_large"),
        (b"PK\x03\x04" + bytes(100), "a.zip", "file_broken"),
        (b"\x89PNG\r\n\x1a\n\x00\x00", "a.png", "format_unsupported"),
        (bytes(range(256)), "a.bin", "format_unsupported"),
    ],
)
async def test_a_file_that_cannot_be_read_fails_for_good_and_says_why(
    kind: ExtractTextKind, data: bytes, name: str, code: str
) -> None:
    mime = {"a.png": "image/png", "a.pdf": "application/pdf"}.get(name, "")

    failed = await read(kind, data, name, mime)

    assert isinstance(failed, Failure), failed
    assert (failed.code, failed.transient) == (code, False), failed.message
    assert failed.message
    assert text(await read(kind, b"Still here.", "b.txt")) == "Still here."


async def test_a_missing_file_is_told(kind: ExtractTextKind) -> None:
    file = {"name": "a", "mime": "", "size_bytes": 1, "sha256": "0" * 64}
    requests = [
        ComputeRequest(text="", inputs={}, source=source, output_type=TEXT, options={})
        for source in (file, {"no": "file"})
    ]

    missing, wrong = await kind.compute(
        requests, ComputeContext(settings=Settings(), files=Files())
    )

    assert isinstance(missing, Failure)
    assert missing.code == "blob_missing"
    assert isinstance(wrong, Failure)
    assert wrong.code == "value_invalid"


async def test_a_reader_out_of_memory_fails_the_file_and_not_the_next(pool: ExtractPool) -> None:
    pool.memory_bytes = 400_000_000

    failed = await pool.extract(b"word " * 20_000_000, name="a.txt", mime="text/plain")

    assert isinstance(failed, Failure)
    assert (failed.code, failed.transient) == ("too_large", False)
    assert await pool.extract(b"Fine.", name="b.txt") == Extract(text="Fine.", format="text")


async def test_a_reader_that_takes_too_long_is_replaced(pool: ExtractPool) -> None:
    pool.seconds = 0.001

    failed = await pool.extract(b"Slow.", name="a.txt")

    assert isinstance(failed, Failure)
    assert (failed.code, failed.transient) == ("timeout", False)
    pool.seconds = 60
    assert await pool.extract(b"Fine.", name="b.txt") == Extract(text="Fine.", format="text")


async def test_a_file_is_not_blamed_for_a_reader_that_died_before_it(pool: ExtractPool) -> None:
    await pool.extract(b"First.", name="a.txt")
    (reader,) = pool._idle
    os.kill(reader.pid, signal.SIGKILL)
    await reader.wait()

    assert await pool.extract(b"Fine.", name="b.txt") == Extract(text="Fine.", format="text")


async def test_a_file_whose_readers_die_is_broken(
    pool: ExtractPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", shutil.which("false"))

    failed = await pool.extract(b"Deadly.", name="a.txt")

    assert isinstance(failed, Failure)
    assert (failed.code, failed.transient) == ("file_broken", False)


async def test_a_closed_pool_leaves_no_process(pool: ExtractPool) -> None:
    await pool.extract(b"First.", name="a.txt")
    (reader,) = pool._idle

    await pool.aclose()

    assert reader.returncode == -signal.SIGKILL


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_a_reader_ends_with_its_parent() -> None:
    script = """
import asyncio, os, signal
from everfill.compute.extract_pool import ExtractPool
async def main():
    pool = ExtractPool()
    await pool.extract(b"x", name="a.txt")
    print(pool._idle[0].pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""
    ended = subprocess.run(  # noqa: ASYNC221 - nothing else runs meanwhile
        [sys.executable, "-c", script], capture_output=True, check=False, timeout=60
    )

    assert ended.returncode == -signal.SIGKILL
    deadline = time.monotonic() + 30
    while is_running(int(ended.stdout)):
        assert time.monotonic() < deadline, "the reader outlived its parent"


def is_running(pid: int) -> bool:
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    return False
