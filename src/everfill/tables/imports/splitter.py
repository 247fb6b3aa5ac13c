"""Records of a delimited text, split so that a quoted empty field and an absent one stay apart.

Fields come as plain strings, because millions of them are made: an absent field is "", and a quoted
empty one is `QUOTED_EMPTY`, a character that no encoding yields. A byte that the encoding does not
know arrives as `BAD_BYTE`, another such character, and makes its record a faulty one.
"""

from __future__ import annotations

import codecs
import io
from collections.abc import Iterator
from typing import Final, NamedTuple, TextIO

from everfill.kernel import limits
from everfill.kernel.errors import InvalidError

__all__ = ["BAD_BYTE", "BAD_BYTES_HANDLER", "QUOTED_EMPTY", "Record", "Splitter", "physical_lines"]

BAD_BYTE: Final = "\udc80"
QUOTED_EMPTY: Final = "\udc81"
BAD_BYTES_HANDLER: Final = "everfill.bad-byte"
"""The decoding error handler that puts `BAD_BYTE` in place of each byte it cannot read."""

_CHUNK_CHARS: Final = 1 << 18


def _mark_bad_byte(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return BAD_BYTE, error.end


codecs.register_error(BAD_BYTES_HANDLER, _mark_bad_byte)


class Record(NamedTuple):
    """One record: the physical line it starts on, its fields, and what is wrong with it."""

    line: int
    fields: list[str]
    fault: str | None


def physical_lines(text: TextIO, *, chars_max: int = limits.CELL_BYTES_MAX) -> Iterator[str]:
    """The lines of a text opened with `newline=""`, each with its LF, CR or CRLF.

    Raises:
        InvalidError: `line_too_long`; no more than one line is ever held.
    """
    parts: list[str] = []
    held = 0
    number = 1
    while chunk := text.read(_CHUNK_CHARS):
        parts.append(chunk)
        held += len(chunk)
        if held > chars_max:
            message = f"Line {number} is longer than {chars_max:,} characters."
            raise InvalidError("line_too_long", message, hint="Is this a text table at all?")
        if "\n" not in chunk and "\r" not in chunk:
            continue
        lines = list(io.StringIO("".join(parts), newline=""))
        last = lines.pop()  # it may go on, or be a CR whose LF is still to come
        if last.endswith("\n"):
            lines.append(last)
            last = ""
        number += len(lines)
        parts, held = [last], len(last)
        yield from lines
    yield from io.StringIO("".join(parts), newline="")


class Splitter:
    """Splits lines into records.

    Args:
        lines: Physical lines with their ends.
        delimiter: One character.
        line: The number of the first of them.
        cell_bytes_max: A record with a larger field is faulty.
    """

    def __init__(
        self,
        lines: Iterator[str],
        delimiter: str,
        *,
        line: int = 1,
        cell_bytes_max: int = limits.CELL_BYTES_MAX,
    ) -> None:
        self._lines = lines
        self._delimiter = delimiter
        self._line = line - 1
        self._cell_bytes_max = cell_bytes_max
        self._suspect_chars = cell_bytes_max // 4
        self._overflown = False

    def __iter__(self) -> Iterator[Record]:
        """Every record; a blank line is the record [""].

        Raises:
            InvalidError: `quote_unclosed`, with the line where the quotation mark opened.
        """
        delimiter = self._delimiter
        for line in self._lines:
            self._line += 1
            start = self._line
            if '"' in line:
                simple = _simply_quoted(line, delimiter)
                fields, fault = (simple, None) if simple is not None else self._quoted(line)
            else:
                fields, fault = line.rstrip("\r\n").split(delimiter), None
            if (
                (len(line) > self._suspect_chars or self._line > start)
                or (not line.isascii() and BAD_BYTE in line)
            ) and fault is None:
                fault = self._fault(fields)
            yield Record(start, fields, fault)

    def _fault(self, fields: list[str]) -> str | None:
        if any(BAD_BYTE in field for field in fields):
            return "bytes that are no text in the file's encoding"
        if self._overflown or any(self._too_large(field) for field in fields):
            self._overflown = False
            return f"a cell over {self._cell_bytes_max:,} bytes"
        return None

    def _too_large(self, field: str) -> bool:
        if len(field) <= self._suspect_chars:
            return False
        return len(field.encode("utf-8", "surrogatepass")) > self._cell_bytes_max

    def _quoted(self, line: str) -> tuple[list[str], str | None]:
        """The fields of a record with quotation marks, which may go on over further lines."""
        fields: list[str] = []
        fault: str | None = None
        position = 0
        while True:
            opening = _opening(line, position)
            if opening is None:
                end = line.find(self._delimiter, position)
                fields.append(line[position:].rstrip("\r\n") if end < 0 else line[position:end])
            else:
                text, line, after = self._quoted_field(line, opening + 1)
                end = line.find(self._delimiter, after)
                rest = line[after:] if end < 0 else line[after:end]
                if rest.strip(" \r\n"):
                    fault = "text after a closing quotation mark"
                fields.append(text or QUOTED_EMPTY)
            if end < 0:
                return fields, fault
            position = end + 1

    def _quoted_field(self, line: str, position: int) -> tuple[str, str, int]:
        """The field's text, the line on which it closes, and the place after its closing mark."""
        opened = self._line
        parts: list[str] = []
        held = 0
        while True:
            end = line.find('"', position)
            if end < 0:
                held += len(line) - position
                if held <= self._cell_bytes_max:
                    parts.append(line[position:])
                line, position = self._next_line(opened), 0
            elif line.startswith('""', end):
                parts.append(line[position : end + 1])
                position = end + 2
            else:
                parts.append(line[position:end])
                self._overflown = self._overflown or held > self._cell_bytes_max
                return "".join(parts), line, end + 1

    def _next_line(self, opened: int) -> str:
        line = next(self._lines, None)
        if line is None:
            message = f"The quotation mark that opens on line {opened} is never closed."
            hint = "Close it, or double the marks inside the field."
            raise InvalidError("quote_unclosed", message, hint=hint)
        self._line += 1
        return line


def _opening(line: str, position: int) -> int | None:
    """Where a quotation mark opens the field that starts here; spaces may stand before it."""
    if line.startswith('"', position):
        return position
    while line.startswith(" ", position):
        position += 1
    return position if line.startswith('"', position) else None


def _simply_quoted(line: str, delimiter: str) -> list[str] | None:
    """The fields of a line whose quotation marks only ever enclose whole fields; else None.

    Most quoted lines are such, and splitting them at the marks is several times faster.
    """
    segments = line.rstrip("\r\n").split('"')
    last = len(segments) - 1
    if last % 2 or '""' in line:
        return None
    fields: list[str] = []
    for place in range(0, last + 1, 2):
        outside = segments[place]
        if place:
            fields.append(segments[place - 1])
        begun, ended = place == 0, place == last
        if not outside and begun != ended:
            continue
        if not (begun or outside.startswith(delimiter)):
            return None
        if not (ended or outside.endswith(delimiter)):
            return None
        if outside == delimiter and not begun and not ended:
            continue
        fields += outside[not begun : len(outside) - (not ended)].split(delimiter)
    return fields
