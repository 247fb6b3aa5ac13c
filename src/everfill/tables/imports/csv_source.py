"""CSV, TSV and their kin: any encoding, any delimiter, quoted line breaks, ragged rows told."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

from everfill.kernel import limits
from everfill.kernel.errors import InvalidError
from everfill.tables.imports.dialect import declared_delimiter, delimiter_name, sniff_delimiter
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
from everfill.tables.imports.splitter import QUOTED_EMPTY, Record, Splitter, physical_lines
from everfill.tables.infer import Inferred, Reader, TextProfile
from everfill.tables.numbers import DecimalMark
from everfill.tables.types import TypeName
from everfill.tables.values import MISSING, JsonValue, Missing

__all__ = ["CsvSource"]

_SNIFFED_LINES: Final = 400
_SAMPLED_ROWS: Final = 1_000
_SCAN_ROWS: Final = 2_000


class CsvSource(SyncSource):
    """A delimited text file.

    The first record is the header. A file up to `limits.TYPE_SCAN_BYTES_MAX` is read once at
    opening, so that types and bad rows are known before a row is imported; of a larger one the
    first rows decide, and a later value that does not fit its column's type stays text (a note
    counts them). Nothing between two delimiters is MISSING. `""` is the empty string in a text
    column, and null in any other, where there is no empty value.

    Args:
        path: The file.
        on_bad_row: Whether a bad row ends the import.
        scan_bytes_max: Up to which size the file is read before the import.

    Raises:
        InvalidError: The file is empty, has no readable header, or (unless bad rows are skipped)
            has rows that do not fit it.
    """

    def __init__(
        self,
        path: Path,
        *,
        on_bad_row: OnBadRow,
        scan_bytes_max: int = limits.TYPE_SCAN_BYTES_MAX,
    ) -> None:
        super().__init__(size_bytes=path.stat().st_size, on_bad_row=on_bad_row)
        self._path = path
        self._encoding = detect_encoding(path)
        self._delimiter, self._skipped_lines = self._detect_dialect()
        header = self._header()
        names, self._renamings = distinct_names(header)
        self._width = len(names)
        whole = self.size_bytes <= scan_bytes_max
        profiles = self._profile(whole=whole)
        inferred = self._decide(profiles)
        self.columns = tuple(
            SourceColumn(name=name, type=column.type)
            for name, column in zip(names, inferred, strict=True)
        )
        self._readers = [column.read for column in inferred]
        self._unfit = [0] * self._width
        self._tell(inferred, whole=whole)

    def read(self, rows_max: int) -> Iterator[list[SourceRow]]:
        """Read all rows from the start, at most `rows_max` at a time."""
        self._bad.clear()
        self._unfit = [0] * self._width
        for numbers, records in self._good_records(self._bad, rows_max):
            columns = zip(*(record.fields for record in records), strict=True)
            values = [self._convert(index, cells) for index, cells in enumerate(columns)]
            yield [
                SourceRow(str(number), row, record.line)
                for number, row, record in zip(
                    numbers, zip(*values, strict=True), records, strict=True
                )
            ]
        self._tell_unfit()

    def _records(self) -> Iterator[Record]:
        """The records of the file, header included; the file is closed at the end."""
        with open_text(self._path, self._encoding) as text:
            lines = physical_lines(text)
            for _ in range(self._skipped_lines):
                next(lines, None)
            yield from Splitter(lines, self._delimiter, line=self._skipped_lines + 1)

    def _good_records(
        self, bad: BadRows, rows_max: int
    ) -> Iterator[tuple[list[int], list[Record]]]:
        """Batches of records as wide as the header, each with its ordinal among all rows."""
        width = self._width
        numbers: list[int] = []
        batch: list[Record] = []
        number = 0
        for record in islice(self._records(), 1, None):
            fields = record.fields
            if len(fields) != width or record.fault is not None:
                if fields == [""]:
                    continue  # a blank line
                number += 1
                self._report(bad, record)
                continue
            number += 1
            numbers.append(number)
            batch.append(record)
            if len(batch) == rows_max:
                yield numbers, batch
                numbers, batch = [], []
        if batch:
            yield numbers, batch

    def _report(self, bad: BadRows, record: Record) -> None:
        got = len(record.fields)
        reason = record.fault or f"{got} field(s) where the header has {self._width}"
        row = BadRow(line=record.line, reason=reason, expected=self._width, got=got)
        if bad is self._bad:
            self._refuse(row)
        else:
            bad.add(row)

    def _detect_dialect(self) -> tuple[str, int]:
        with open_text(self._path, self._encoding) as text:
            lines = list(islice(physical_lines(text), _SNIFFED_LINES))
        declared = declared_delimiter(lines[0]) if lines else None
        if declared:
            return declared, 1
        preferred = "\t" if self._path.suffix.lower() in {".tsv", ".tab"} else None
        return sniff_delimiter(lines, preferred=preferred), 0

    def _header(self) -> list[str]:
        header = next(self._records(), None)
        if header is None or header.fields == [""]:
            message = f"{self._path.name} has no header: it is empty, or its first line is."
            raise InvalidError("file_empty", message, hint="Name the columns in the first line.")
        if header.fault is not None:
            message = f"The header of {self._path.name} (line {header.line}) has {header.fault}."
            raise InvalidError("header_invalid", message)
        return ["" if name == QUOTED_EMPTY else name for name in header.fields]

    def _profile(self, *, whole: bool) -> list[TextProfile]:
        """What each column could be, from all rows or from the first ones."""
        bad = BadRows()
        profiles = [TextProfile() for _ in range(self._width)]
        rows = 0
        for _, records in self._good_records(bad, _SCAN_ROWS if whole else _SAMPLED_ROWS):
            rows += len(records)
            columns = zip(*(record.fields for record in records), strict=True)
            for profile, cells in zip(profiles, columns, strict=True):
                if profile.is_open:
                    profile.observe(set(cells) - {"", QUOTED_EMPTY})
            if not whole:
                break
        if bad.count and self._on_bad_row == "stop":
            raise bad.stop()
        if whole:
            self.row_count = rows
        return profiles

    def _decide(self, profiles: Sequence[TextProfile]) -> list[Inferred]:
        proven: set[DecimalMark] = {profile.decimal for profile in profiles if profile.decimal}
        fallback: DecimalMark | None = None
        reason = "nothing in the column says otherwise"
        if len(proven) == 1:
            fallback, reason = proven.pop(), "other columns of the file have it"
        elif not proven and self._delimiter in ",;":
            fallback = "." if self._delimiter == "," else ","
            reason = f"the file is delimited by a {delimiter_name(self._delimiter)}"
        return [profile.decide(fallback=fallback, fallback_reason=reason) for profile in profiles]

    def _convert(self, index: int, cells: Sequence[str]) -> list[JsonValue | Missing]:
        read = self._readers[index]
        if read is None:
            return [
                MISSING if cell == "" else "" if cell == QUOTED_EMPTY else cell for cell in cells
            ]
        return [
            MISSING
            if cell == ""
            else None
            if cell == QUOTED_EMPTY
            else self._fit(read, index, cell)
            for cell in cells
        ]

    def _fit(self, read: Reader, index: int, cell: str) -> JsonValue:
        value = read(cell)
        if value is None:
            self._unfit[index] += 1
            return cell
        return value

    def _tell(self, inferred: Sequence[Inferred], *, whole: bool) -> None:
        if self._encoding != UTF_8:
            how = "taken for" if self._encoding.guessed else "read as"
            self._note(f"The file is {how} {self._encoding.label}.")
        if self._delimiter != ",":
            self._note(f"The fields are delimited by a {delimiter_name(self._delimiter)}.")
        for renaming in self._renamings:
            self._note(renaming)
        for column, outcome in zip(self.columns, inferred, strict=True):
            if outcome.note:
                self._note(f"Column {column.name!r}: {outcome.note}.")
        if not whole and any(column.type.name is not TypeName.TEXT for column in self.columns):
            self._note(f"Types are inferred from the first {_SAMPLED_ROWS:,} rows.")

    def _tell_unfit(self) -> None:
        for column, count in zip(self.columns, self._unfit, strict=True):
            if count:
                self._note(
                    f"Column {column.name!r}: {count:,} value(s) are no {column.type.name}"
                    " and are kept as text."
                )
