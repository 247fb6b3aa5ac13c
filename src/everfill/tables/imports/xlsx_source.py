"""Excel workbooks: one sheet, its first row the header, its cells as the types they have."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

from python_calamine import CalamineError, CalamineWorkbook

from everfill.kernel import limits
from everfill.kernel.errors import InvalidError
from everfill.tables.imports.names import distinct_names
from everfill.tables.imports.source import OnBadRow, SourceColumn, SourceRow, SyncSource
from everfill.tables.infer_values import ValueProfile, fit_value, plain_value
from everfill.tables.types import TypeName
from everfill.tables.values import MISSING, JsonValue, Missing, to_text

__all__ = ["XlsxSource", "check_workbook"]

_CHUNK_BYTES: Final = 1 << 20
_EXACT_MAX: Final = 2**53
_NO_ROW: Final[tuple[int, Sequence[object]]] = (0, ())
_REFERENCE: Final = re.compile(rb'<(?:\w+:)?c [^>]*?\br="([A-Z]{1,3})([0-9]{1,7})"')
_REFERENCE_BYTES_MAX: Final = 400


class XlsxSource(SyncSource):
    """One sheet of a workbook.

    Text stays text; a column of several kinds becomes text. An empty cell is MISSING: Excel knows
    no empty string apart from it. Rows without any value are passed over. A moment is UTC.

    Args:
        path: The workbook.
        on_bad_row: As for every source; a sheet has no bad rows.
        sheet: Its name; the first one if None.

    Raises:
        InvalidError: `file_unreadable`, `file_too_large` (a zip bomb), `sheet_missing`,
            `file_empty`.
    """

    def __init__(self, path: Path, *, on_bad_row: OnBadRow, sheet: str | None = None) -> None:
        super().__init__(size_bytes=path.stat().st_size, on_bad_row=on_bad_row)
        check_workbook(path)
        self._path = path
        self._sheet = self._chosen(sheet)
        rows = self._rows()
        _, header = next(rows, _NO_ROW)
        profiles = self._profile(rows, len(header))
        while profiles and not profiles[-1].kinds and _is_empty(header[len(profiles) - 1]):
            profiles.pop()  # only formatted, never filled
        if not profiles:
            message = f"Sheet {self._sheet!r} of {path.name} is empty."
            raise InvalidError("file_empty", message, hint="Name the columns in its first row.")
        headers = [to_text(plain_value(_whole(cell))) for cell in header[: len(profiles)]]
        names, renamings = distinct_names(headers)
        self.columns = tuple(
            SourceColumn(name=name, type=profile.decide())
            for name, profile in zip(names, profiles, strict=True)
        )
        for renaming in renamings:
            self._note(renaming)
        self._tell(profiles)

    def read(self, rows_max: int) -> Iterator[list[SourceRow]]:
        """Read all rows from the start, at most `rows_max` at a time."""
        self._bad.clear()
        types = [column.type.name for column in self.columns]
        rows = enumerate(islice(self._rows(), 1, None), start=1)
        while chunk := list(islice(rows, rows_max)):
            yield [
                SourceRow(
                    str(number),
                    [_value(cell, name) for cell, name in zip(row, types, strict=False)],
                    line,
                )
                for number, (line, row) in chunk
            ]

    def _chosen(self, sheet: str | None) -> str:
        with _opened(self._path) as workbook:
            names = workbook.sheet_names
        if sheet is None and names:
            if len(names) > 1:
                self._note(f"Sheet {names[0]!r} is imported; there are {len(names) - 1} more.")
            return names[0]
        if sheet is None or sheet not in names:
            message = f"{self._path.name} has no sheet {sheet!r}."
            raise InvalidError("sheet_missing", message, hint=f"It has: {', '.join(names)}.")
        return sheet

    def _rows(self) -> Iterator[tuple[int, Sequence[object]]]:
        """The rows that hold anything, each with its number in the sheet."""
        with _opened(self._path) as workbook:
            try:
                sheet = workbook.get_sheet_by_name(self._sheet)
            except CalamineError as error:
                raise _unreadable(self._path, error) from error
            for line, row in enumerate(sheet.iter_rows(), start=1):
                if not all(_is_empty(cell) for cell in row):
                    yield line, row

    def _profile(
        self, rows: Iterator[tuple[int, Sequence[object]]], width: int
    ) -> list[ValueProfile]:
        profiles = [ValueProfile(mixed=TypeName.TEXT) for _ in range(width)]
        count = 0
        for _, row in rows:
            count += 1
            for profile, cell in zip(profiles, row, strict=True):
                if not _is_empty(cell):
                    profile.observe((cell,))
        self.row_count = count
        return profiles

    def _tell(self, profiles: Sequence[ValueProfile]) -> None:
        for column, profile in zip(self.columns, profiles, strict=True):
            if column.type.name is TypeName.DATETIME and profile.kinds != {TypeName.TEXT}:
                self._note(f"Column {column.name!r}: moments are taken as UTC.")
            if len(profile.kinds) > 1 and column.type.name is TypeName.TEXT:
                kinds = ", ".join(sorted(profile.kinds))
                self._note(f"Column {column.name!r} holds several kinds ({kinds}): text.")


def check_workbook(path: Path) -> None:
    """Refuse a workbook that would not fit in memory once unpacked, whatever its head says.

    Raises:
        InvalidError: `file_too_large` or `file_unreadable`.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            _check_members(path, archive)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError) as error:
        raise _unreadable(path, error) from error


def _check_members(path: Path, archive: zipfile.ZipFile) -> None:
    unpacked = 0
    for member in archive.infolist():
        is_sheet = member.filename.startswith("xl/worksheets/")
        columns = rows = 0
        tail = b""
        with archive.open(member) as content:  # a length that lies fails its checksum here
            while chunk := content.read(_CHUNK_BYTES):
                unpacked += len(chunk)
                if unpacked > limits.XLSX_UNPACKED_BYTES_MAX:
                    raise _too_large(
                        path, f"unpacks to over {limits.XLSX_UNPACKED_BYTES_MAX:,} bytes"
                    )
                if is_sheet:
                    width, height = _extent(tail + chunk)
                    columns, rows = max(columns, width), max(rows, height)
                    tail = chunk[-_REFERENCE_BYTES_MAX:]
        if columns * rows > limits.XLSX_CELLS_MAX:
            raise _too_large(path, f"has a sheet of {columns:,} x {rows:,} cells")


def _extent(chunk: bytes) -> tuple[int, int]:
    """The furthest column and row that some of a sheet's XML mentions."""
    found = _REFERENCE.findall(chunk)
    columns = {letters for letters, _ in found}
    rows = {int(digits) for _, digits in found}
    return max(map(_column_number, columns), default=0), max(rows, default=0)


def _column_number(letters: bytes) -> int:
    number = 0
    for letter in letters:
        number = number * 26 + letter - 64
    return number


def _opened(path: Path) -> CalamineWorkbook:
    try:
        return CalamineWorkbook.from_path(path)  # pyright: ignore[reportUnknownMemberType] - an unparametrized PathLike in its signature
    except (CalamineError, OSError) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> InvalidError:
    message = f"{path.name} is no readable Excel workbook: {error}"
    return InvalidError("file_unreadable", message, hint="Save it again as .xlsx, unprotected.")


def _too_large(path: Path, what: str) -> InvalidError:
    message = f"{path.name} {what}."
    return InvalidError("file_too_large", message, hint="Save it as CSV: that has no such limit.")


def _is_empty(cell: object) -> bool:
    return cell == "" or cell is None


def _value(cell: object, name: TypeName) -> JsonValue | Missing:
    if _is_empty(cell):
        return MISSING
    return fit_value(_whole(cell), name)


def _whole(cell: object) -> object:
    """Excel knows only floats; a whole one is an int here."""
    if isinstance(cell, float) and cell.is_integer() and abs(cell) < _EXACT_MAX:
        return int(cell)
    return cell
