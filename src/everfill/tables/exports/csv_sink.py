"""CSV and TSV in UTF-8: missing and null are nothing, the empty string is `""`, lines end in LF.

Lists and objects are JSON text, files their names (JSON lines and Parquet keep the whole of them).
NUL is written as it is, half of a surrogate pair as U+FFFD.

Text is written as it is, also where it starts with `=`, `+`, `-` or `@`: a file of values must
come back unchanged. (A spreadsheet program may take such text for a formula; the Excel format says
that it is text.)
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Final

from everfill.tables.exports.sink import Sink, SinkColumn, cell_text
from everfill.tables.types import TypeName
from everfill.tables.values import MISSING, JsonValue, Missing

__all__ = ["CsvSink"]

_SPECIAL: Final = re.compile(r'[",\r\n\t;|]|\Asep=')
"""What needs quotation marks: every usual delimiter, so that no reader guesses wrong."""


class CsvSink(Sink):
    """Writes delimited text.

    Args:
        path: `.tsv` and `.tab` are delimited by tabs, all others by commas.
        columns: In the order of the values of a row.
        with_status: Whether statuses and errors are written too.
    """

    def __init__(self, path: Path, columns: Sequence[SinkColumn], *, with_status: bool) -> None:
        super().__init__(path, columns, with_status=with_status)
        self._delimiter = "\t" if path.suffix.lower() in {".tsv", ".tab"} else ","
        self._types = [column.type.name for column in self._layout]
        self._file: BinaryIO | None = None

    def _open(self, part: Path) -> None:
        self._file = part.open("xb")
        self._put(self._delimiter.join(_quoted(column.name) for column in self._layout) + "\n")

    def _write(self, rows: Sequence[Sequence[JsonValue | Missing]]) -> None:
        delimiter, types = self._delimiter, self._types
        lines = [delimiter.join(map(_field, row, types)) for row in rows]
        self._put("".join([line + "\n" for line in lines]))

    def _put(self, text: str) -> None:
        assert self._file is not None, "the sink is entered"
        self._file.write(self._storable(text).encode())

    def _finish(self) -> None:
        if self._file is not None:
            self._file.close()

    def _abandon(self) -> None:
        self._finish()


def _field(value: JsonValue | Missing, name: TypeName) -> str:
    if isinstance(value, str):
        return f'"{value.replace(_MARK, _MARKS)}"' if not value or _SPECIAL.search(value) else value
    if value is None or value is MISSING:
        return ""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return repr(value)
    return _quoted(cell_text(value, name))


def _quoted(text: str) -> str:
    return f'"{text.replace(_MARK, _MARKS)}"' if _SPECIAL.search(text) else text


_MARK: Final = '"'
_MARKS: Final = '""'
