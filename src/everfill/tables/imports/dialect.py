"""The delimiter of a text table, found by which one splits its first records alike."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice
from typing import Final

from everfill.kernel.errors import InvalidError
from everfill.tables.imports.splitter import Splitter

__all__ = ["declared_delimiter", "sniff_delimiter"]

_USUAL: Final = ",;\t|"
_UNUSUAL: Final = "\x01\x1f^~:#"
_RECORDS: Final = 200
_SPREADSHEET_LINE: Final = re.compile(r"\ufeff?sep=(.)\r?\n?", re.IGNORECASE)
_NAMES: Final = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}


def declared_delimiter(line: str) -> str | None:
    """The delimiter that a first line `sep=;` declares, as spreadsheet programs write it."""
    match = _SPREADSHEET_LINE.fullmatch(line)
    return match[1] if match else None


def sniff_delimiter(lines: Sequence[str], *, preferred: str | None = None) -> str:
    """The delimiter under which most records have as many fields as the header.

    Args:
        lines: The first physical lines.
        preferred: Taken wherever the header holds it (a tab, for a file named `.tsv`).
    """
    if preferred and lines and preferred in lines[0]:
        return preferred
    usual = max(_USUAL, key=lambda delimiter: _fit(lines, delimiter))
    if _fit(lines, usual)[0] > 0:
        return usual
    # An unusual delimiter must explain every record, for the character is common in plain text.
    unusual = max(_UNUSUAL, key=lambda delimiter: _fit(lines, delimiter))
    explains = _fit(lines, unusual)[0] >= 1 and len(lines) > 2  # noqa: PLR2004 - a header, two rows
    return unusual if explains else (preferred or ",")


def delimiter_name(delimiter: str) -> str:
    """What people call it."""
    return _NAMES.get(delimiter, repr(delimiter))


def _fit(lines: Sequence[str], delimiter: str) -> tuple[float, int]:
    """The share of records as wide as the header, and that width; 0 where there is one field."""
    widths: list[int] = []
    try:
        for record in islice(Splitter(iter(lines), delimiter), _RECORDS):
            blank = record.fields == [""]
            widths += [] if blank else [len(record.fields) if record.fault is None else 0]
    except InvalidError:
        pass  # the sample ends inside a quoted field: what came before it counts
    if not widths or widths[0] < 2:  # noqa: PLR2004 - one field is no delimiter
        return 0.0, 0
    rows = widths[1:] or widths
    return max(sum(width == widths[0] for width in rows) / len(rows), 0.01), widths[0]
