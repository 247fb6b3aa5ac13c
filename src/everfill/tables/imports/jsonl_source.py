"""JSON lines: one object a line; the columns are the keys of all, in order of first sight."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from everfill.kernel import limits
from everfill.kernel.errors import InvalidError
from everfill.tables.imports.encoding import UTF_8, detect_encoding, open_text
from everfill.tables.imports.names import distinct_names
from everfill.tables.imports.source import (
    BadRow,
    BadRows,
    OnBadRow,
    SourceColumn,
    SourceRow,
    SyncSource,
)
from everfill.tables.imports.splitter import BAD_BYTE, physical_lines
from everfill.tables.infer_values import ValueProfile, fit_value
from everfill.tables.parse import parse_json
from everfill.tables.types import TypeName
from everfill.tables.values import MISSING, JsonValue

__all__ = ["JsonlSource"]


class JsonlSource(SyncSource):
    """A file of JSON objects, one a line.

    It is read once at opening, whatever its size, for a key may appear in the last line only. A key
    that an object does not have is MISSING; null is null. Blank lines are passed over.

    Raises:
        InvalidError: The file is empty, or (unless bad rows are skipped) a line is no object.
    """

    def __init__(self, path: Path, *, on_bad_row: OnBadRow) -> None:
        super().__init__(size_bytes=path.stat().st_size, on_bad_row=on_bad_row)
        self._path = path
        self._encoding = detect_encoding(path)
        profiles = self._profile()
        self._keys = list(profiles)
        names, renamings = distinct_names(self._keys)
        self.columns = tuple(
            SourceColumn(name=name, type=profile.decide())
            for name, profile in zip(names, profiles.values(), strict=True)
        )
        if self._encoding != UTF_8:
            self._note(f"The file is read as {self._encoding.label}.")
        for renaming in renamings:
            self._note(renaming)

    def read(self, rows_max: int) -> Iterator[list[SourceRow]]:
        """Read all rows from the start, at most `rows_max` at a time."""
        self._bad.clear()
        fields = [
            (key, column.type.name) for key, column in zip(self._keys, self.columns, strict=True)
        ]
        batch: list[SourceRow] = []
        for number, line, item in self._objects():
            if isinstance(item, BadRow):
                self._refuse(item)
                continue
            values = [
                fit_value(item[key], name) if key in item else MISSING for key, name in fields
            ]
            batch.append(SourceRow(str(number), values, line))
            if len(batch) == rows_max:
                yield batch
                batch = []
        if batch:
            yield batch

    def _profile(self) -> dict[str, ValueProfile]:
        bad = BadRows()
        profiles: dict[str, ValueProfile] = {}
        rows = 0
        for _, _, item in self._objects():
            if isinstance(item, BadRow):
                bad.add(item)
                continue
            rows += 1
            for key, value in item.items():
                profile = profiles.setdefault(key, ValueProfile(mixed=TypeName.JSON))
                if value is not None:
                    profile.observe((value,))
            if len(profiles) > limits.COLUMNS_MAX:
                distinct_names(list(profiles))  # raises
        if bad.count and self._on_bad_row == "stop":
            raise bad.stop()
        if not profiles:
            message = f"{self._path.name} holds no JSON object with a key."
            raise InvalidError("file_empty", message, hint='Write one object a line: {"name": 1}')
        self.row_count = rows
        return profiles

    def _objects(self) -> Iterator[tuple[int, int, dict[str, JsonValue] | BadRow]]:
        """Each object, or what is wrong with its line; with its ordinal and its line."""
        number = 0
        with open_text(self._path, self._encoding) as text:
            for line, content in enumerate(physical_lines(text), start=1):
                if not content.strip():
                    continue
                number += 1
                yield number, line, _object(content, line)


def _object(content: str, line: int) -> dict[str, JsonValue] | BadRow:
    if BAD_BYTE in content:
        return BadRow(line=line, reason="bytes that are no text in the file's encoding")
    try:
        value = _decoded(content)
    except ValueError as error:
        return BadRow(line=line, reason=f"no JSON ({error})")
    if not isinstance(value, dict):
        return BadRow(line=line, reason="JSON, but no object")
    if any(_too_large(cell) for cell in value.values()):
        return BadRow(line=line, reason=f"a cell over {limits.CELL_BYTES_MAX:,} bytes")
    return value


def _too_large(cell: JsonValue) -> bool:
    # Only text can be so large within one line without being nested, and a line has a bound.
    if not isinstance(cell, str) or len(cell) * 4 <= limits.CELL_BYTES_MAX:
        return False
    return len(cell.encode("utf-8", "surrogatepass")) > limits.CELL_BYTES_MAX


def _decoded(content: str) -> JsonValue:
    """The value of a line: fast, or by the slower decoder that knows halves of surrogate pairs."""
    try:
        return msgspec.json.decode(content)
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        return parse_json(content)  # decides, and says where the fault is
