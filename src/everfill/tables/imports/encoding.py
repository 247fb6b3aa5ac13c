"""Which encoding a text file is in, and how to read it so that nothing is garbled.

In order: a byte order mark; UTF-16 without one; UTF-8, judged over the whole file up to
`limits.TYPE_SCAN_BYTES_MAX`; and only then the legacy encodings, by what the text would look like.
A file that is UTF-8 but for a few bytes stays UTF-8: those bytes make their rows bad.
"""

from __future__ import annotations

import codecs
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TextIO

from everfill.kernel import limits
from everfill.tables.imports.charsets import guess_charset
from everfill.tables.imports.splitter import BAD_BYTE, BAD_BYTES_HANDLER

__all__ = ["Encoding", "detect_encoding", "open_text"]

_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig", "UTF-8"),
    (codecs.BOM_UTF32_LE, "utf-32", "UTF-32"),
    (codecs.BOM_UTF32_BE, "utf-32", "UTF-32"),
    (codecs.BOM_UTF16_LE, "utf-16", "UTF-16"),
    (codecs.BOM_UTF16_BE, "utf-16", "UTF-16"),
)
_CHUNK_BYTES: Final = 1 << 20
_SAMPLE_BYTES: Final = 1 << 16
_NUL_SHARE_MIN: Final = 0.02
_CONTROL_SHARE_MAX: Final = 0.4
_CONTROLS: Final = frozenset(range(0x20)) - frozenset(b"\t\n\f\r")
_STRAY: Final = frozenset({"Cc", "Cn", "Co", "Cs"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoding:
    """How to decode a file: Python's codec, its name for people, and whether it was guessed."""

    codec: str
    label: str
    guessed: bool = False


UTF_8: Final = Encoding(codec="utf-8", label="UTF-8")


def detect_encoding(path: Path) -> Encoding:
    """The encoding of a text file."""
    with path.open("rb") as file:
        head = file.read(_SAMPLE_BYTES)
    for mark, codec, label in _MARKS:
        if head.startswith(mark):
            return Encoding(codec=codec, label=f"{label} with a byte order mark")
    wide = _unmarked_utf16(head)
    if wide is not None:
        return wide
    sample = _not_utf8(path)
    if sample is None:
        return UTF_8
    codec, label = guess_charset(sample)
    return Encoding(codec=codec, label=label, guessed=True)


def open_text(path: Path, encoding: Encoding) -> TextIO:
    """The file as text with its line ends as they are and `BAD_BYTE` for what cannot be read."""
    return path.open(encoding=encoding.codec, errors=BAD_BYTES_HANDLER, newline="")


def _unmarked_utf16(head: bytes) -> Encoding | None:
    """UTF-16 shows by NULs at every second byte, for line ends and delimiters are ASCII."""
    even, odd = head[0::2].count(0), head[1::2].count(0)
    if max(even, odd) < max(1, _NUL_SHARE_MIN * len(head) / 2) or min(even, odd) * 10 > max(
        even, odd
    ):
        return None
    if _is_utf8_with_nuls(head):
        return None
    codec, label = ("utf-16-le", "UTF-16 LE") if odd > even else ("utf-16-be", "UTF-16 BE")
    try:
        text = codecs.getincrementaldecoder(codec)().decode(head)
    except UnicodeDecodeError:
        return None
    stray = any(unicodedata.category(char) in _STRAY and char not in "\t\r\n" for char in text)
    plain = sum(char in "\n\r\t,;|" for char in text)
    return None if stray or not plain else Encoding(codec=codec, label=label, guessed=True)


def _not_utf8(path: Path) -> bytes | None:
    """None for UTF-8, else a sample of the file around its first bytes beyond ASCII.

    Text in a legacy encoding hardly ever holds well-formed UTF-8 sequences by chance, so a file
    with twice as many of them as bad bytes is UTF-8 with faults.
    """
    decoder = codecs.getincrementaldecoder("utf-8")(BAD_BYTES_HANDLER)
    sample = b""
    good = bad = read = 0
    with path.open("rb") as file:
        while read < limits.TYPE_SCAN_BYTES_MAX and (chunk := file.read(_CHUNK_BYTES)):
            read += len(chunk)
            text = decoder.decode(chunk, final=len(chunk) < _CHUNK_BYTES)
            if text.isascii():
                continue
            faults = text.count(BAD_BYTE)
            bad += faults
            good += len(text) - len(text.encode("ascii", "ignore")) - faults
            if not sample:
                sample = _around(chunk)
    return sample if bad and good <= 2 * bad else None


def _around(chunk: bytes) -> bytes:
    """Whole lines from the first byte beyond ASCII on (and the line before it)."""
    first = len(chunk) - len(chunk.lstrip(bytes(range(128))))
    start = chunk.rfind(b"\n", 0, first) + 1
    cut = chunk[start : start + _SAMPLE_BYTES]
    end = cut.rfind(b"\n")
    return cut[: end + 1] if end >= 0 and start + _SAMPLE_BYTES < len(chunk) else cut


def _is_utf8_with_nuls(head: bytes) -> bool:
    """UTF-16 that is UTF-8 too has a NUL or a control, its alphabet, in every second byte."""
    controls = sum(head.count(byte) for byte in _CONTROLS)
    if controls > _CONTROL_SHARE_MAX * len(head):
        return False
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return True
