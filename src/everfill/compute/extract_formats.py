"""Which reader a document needs, by its bytes and, where they do not say, its type and name.

Runs only inside the reader process.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import PurePath
from typing import Final

from everfill.compute.extract_office import read_docx, read_pptx, read_sheets
from everfill.compute.extract_pages import read_html, read_pdf, read_text
from everfill.compute.extract_result import Extract, UnreadableError
from everfill.kernel import limits

__all__ = ["extract"]

Reader = Callable[[bytes], Extract]

_OLE: Final = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_OLE_ENCRYPTED: Final = "EncryptedPackage".encode("utf-16-le")
_OLE_WORKBOOK: Final = "Workbook".encode("utf-16-le")
_PDF_HEAD_BYTES: Final = 1_024
_UTF_16: Final = (b"\xff\xfe", b"\xfe\xff")
_ZIP_PARTS_MAX: Final = 20_000
_SNIFF_BYTES: Final = 4_096
_HTML_START: Final = re.compile(
    r"\s*(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*)*<(?:!doctype html|html|head|body)\b",
    re.IGNORECASE | re.DOTALL,
)
_HTML_MIMES: Final = frozenset({"text/html", "application/xhtml+xml"})
_HTML_SUFFIXES: Final = frozenset({".html", ".htm", ".xhtml"})
_TEXT_MIME: Final = re.compile(
    r"text/.+|application/(?:json|xml|yaml|x-yaml|x-ndjson|javascript|toml|sql|.+\+(?:json|xml))"
)
_TEXT_SUFFIX: Final = re.compile(r"\.(?:txt|md|rst|csv|tsv|jsonl?|xml|ya?ml|log|toml|ini)")
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0e-\x1a]")
_UNKNOWN_MIMES: Final = frozenset({"", "application/octet-stream", "binary/octet-stream"})


def extract(data: bytes, *, name: str, mime: str, charset: str | None) -> Extract:
    """Read a file by what its bytes are, and where they do not say by its type and name.

    Raises:
        UnreadableError: `format_unsupported`, `file_encrypted`, `too_large` or `file_broken`.
    """
    suffix, kind = PurePath(name).suffix.lower(), mime.partition(";")[0].strip().lower()
    document = _reader(data, suffix, kind, charset)(data)
    if len(document.text) > limits.EXTRACT_CHARS_MAX:
        message = f"Its text has more than {limits.EXTRACT_CHARS_MAX:,} characters."
        raise UnreadableError("too_large", message)
    return document


def _reader(data: bytes, suffix: str, mime: str, charset: str | None) -> Reader:
    texty = mime in _HTML_MIMES or _TEXT_MIME.fullmatch(mime) is not None
    if data.startswith(b"%PDF-") or mime == "application/pdf":
        return read_pdf
    if data.startswith(_OLE):
        return _ole_reader(data)
    if data.startswith(b"PK\x03\x04"):
        return _zip_reader(data)
    if mime in _HTML_MIMES or suffix in _HTML_SUFFIXES:
        return partial(read_html, charset=charset)
    if texty or _TEXT_SUFFIX.fullmatch(suffix):
        return partial(read_text, charset=charset)
    return _unnamed_reader(data, suffix, mime, charset)


def _unnamed_reader(data: bytes, suffix: str, mime: str, charset: str | None) -> Reader:
    """For a file that neither its first bytes nor its type nor its name tells."""
    head = data[:_SNIFF_BYTES]
    if mime in _UNKNOWN_MIMES and b"%PDF-" in head[:_PDF_HEAD_BYTES]:
        return read_pdf
    if mime in _UNKNOWN_MIMES and (head.startswith(_UTF_16) or not _CONTROL.search(head)):
        is_page = _HTML_START.match(head.decode("latin-1"))
        return partial(read_html if is_page else read_text, charset=charset)
    what = mime if mime not in _UNKNOWN_MIMES else suffix or "unknown"
    raise UnreadableError("format_unsupported", f"No text can be read from a file of type {what}.")


def _ole_reader(data: bytes) -> Reader:
    """The old Office container: an encrypted new document, or an old spreadsheet."""
    if _OLE_ENCRYPTED in data:
        raise UnreadableError("file_encrypted", "The document is protected by a password.")
    if _OLE_WORKBOOK in data:
        return read_sheets
    message = "An old Office file (.doc, .ppt); save it in the newer format."
    raise UnreadableError("format_unsupported", message)


def _zip_reader(data: bytes) -> Reader:
    try:
        parts = zipfile.ZipFile(io.BytesIO(data)).infolist()
    except zipfile.BadZipFile as error:
        raise UnreadableError("file_broken", f"The document is damaged: {error}.") from error
    if any(part.flag_bits & 1 for part in parts):
        raise UnreadableError("file_encrypted", "The document is protected by a password.")
    unpacked = sum(part.file_size for part in parts)
    if unpacked > limits.EXTRACT_UNPACKED_BYTES_MAX or len(parts) > _ZIP_PARTS_MAX:
        message = f"It unpacks to {len(parts):,} parts of {unpacked:,} bytes together: too much."
        raise UnreadableError("too_large", message)
    names = {part.filename for part in parts}
    if "word/document.xml" in names:
        return read_docx
    if "ppt/presentation.xml" in names:
        return read_pptx
    if names & {"xl/workbook.xml", "xl/workbook.bin", "content.xml"}:
        return read_sheets
    raise UnreadableError("format_unsupported", "A zip archive that is no Office document.")
