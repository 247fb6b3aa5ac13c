"""Bytes to text, whatever wrote them.

In order: a byte order mark, the charset that the sender declares, the one that an HTML page
declares in its head, strict UTF-8, and only then a guess from the bytes themselves. A declared
charset that does not fit the bytes is passed over. Nothing raises: in the last resort what cannot
be read is replaced.
"""

from __future__ import annotations

import codecs
import re
from typing import Final

from charset_normalizer import from_bytes

__all__ = ["decode_text"]

_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_META: Final = re.compile(
    rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([A-Za-z0-9_\-:.]{2,40})", re.IGNORECASE
)
_XML: Final = re.compile(
    rb"^\s*<\?xml[^>]{0,200}?encoding\s*=\s*[\"']([A-Za-z0-9_\-:.]{2,40})", re.IGNORECASE
)
_HEAD_BYTES: Final = 4_096
_GUESS_BYTES: Final = 200_000
_WIDER: Final = {
    "iso8859-1": "cp1252",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "iso8859-9": "cp1254",
    "tis-620": "cp874",
}
"""What those who write the left name send in practice, as browsers read it."""


def decode_text(data: bytes, declared: str | None = None, *, html: bool = False) -> str:
    """The text of the bytes, without a byte order mark.

    Args:
        data: All of them.
        declared: The charset a header names, if one does.
        html: Look for a charset in the head of the page.
    """
    for mark, name in _MARKS:
        if data.startswith(mark):
            return data[len(mark) :].decode(name, "replace")
    for name in (declared, _declared_inside(data) if html else None, "utf-8"):
        text = _strictly(data, name)
        if text is not None:
            return text
    return _guess(data, declared)


def _declared_inside(data: bytes) -> str | None:
    head = data[:_HEAD_BYTES]
    found = _META.search(head) or _XML.search(head)
    return found[1].decode("ascii") if found else None


def _strictly(data: bytes, name: str | None) -> str | None:
    codec = _codec(name)
    if codec is None:
        return None
    try:
        return data.decode(codec)
    except UnicodeError:
        return None


def _codec(name: str | None) -> str | None:
    """Python's name of a text encoding, in the wider reading; None if it knows none."""
    if not name:
        return None
    try:
        known = codecs.lookup(name.strip())
    except LookupError:
        return None
    is_text: bool = getattr(known, "_is_text_encoding", True)
    return _WIDER.get(known.name, known.name) if is_text else None


def _guess(data: bytes, declared: str | None) -> str:
    match = from_bytes(data[:_GUESS_BYTES]).best()
    guessed = _strictly(data, match.encoding if match else None)
    if guessed is not None:
        return guessed
    return data.decode(_codec(declared) or "utf-8", "replace")
