"""Excel: text is always text, never a formula or a link; what Excel cannot hold is an error."""

# The package ships its types without stubs, some of them partial.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false

from __future__ import annotations

import shutil
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from everfill.kernel.errors import InvalidError
from everfill.tables.exports.sink import Sink, SinkColumn, cell_text
from everfill.tables.types import TypeName
from everfill.tables.values import MISSING, JsonValue, Missing

if TYPE_CHECKING:
    from xlsxwriter.format import Format
    from xlsxwriter.workbook import Workbook
    from xlsxwriter.worksheet import Worksheet

__all__ = ["XlsxSink"]

_ROWS_MAX: Final = 1_048_576
_CHARS_MAX: Final = 32_767
_COLUMNS_MAX: Final = 16_384
_EXACT_MAX: Final = 10**15
_FIRST_DAY: Final = datetime(1900, 3, 1)  # noqa: DTZ001 - Excel knows no offsets
"""Excel believes in a 29th of February 1900: programs disagree about the days before."""
_ELSEWHERE: Final = "Export to CSV or Parquet, which have no such limit."


class XlsxSink(Sink):
    """Writes a workbook of one sheet.

    Whole numbers beyond 15 digits, and days before March 1900, are written as text, for Excel
    would change them. Moments are in UTC, to the millisecond. Files are their names. Missing,
    null and the empty string are all an empty cell.
    Rows are not kept in memory.

    Raises:
        InvalidError: `cell_too_long` (over 32,767 characters), `rows_too_many` (over 1,048,575) or
            `columns_too_many`: nothing is ever cut off in silence.
    """

    def __init__(self, path: Path, columns: Sequence[SinkColumn], *, with_status: bool) -> None:
        super().__init__(path, columns, with_status=with_status)
        if len(self._layout) > _COLUMNS_MAX:
            message = (
                f"An Excel sheet has {_COLUMNS_MAX:,} columns; this has {len(self._layout):,}."
            )
            raise InvalidError("columns_too_many", message, hint=_ELSEWHERE)
        self._book: Workbook | None = None
        self._sheet: Worksheet | None = None
        self._formats: dict[TypeName, Format] = {}
        self._folder = self._part.with_suffix(".parts")
        self._row = 0

    def _open(self, part: Path) -> None:
        import xlsxwriter  # noqa: PLC0415 - an eighth of a second that only Excel files cost

        part.touch(exist_ok=False)  # an unwritable folder shows here, not at the end
        self._folder.mkdir()
        book = xlsxwriter.Workbook(part, {"constant_memory": True, "tmpdir": str(self._folder)})
        book.use_zip64()  # where a sheet is over 4 GiB
        self._book, self._sheet = book, book.add_worksheet("Everfill")
        head = book.add_format({"bold": True})
        self._formats = {
            TypeName.DATE: book.add_format({"num_format": "yyyy-mm-dd"}),
            TypeName.DATETIME: book.add_format({"num_format": "yyyy-mm-dd hh:mm:ss"}),
        }
        for index, column in enumerate(self._layout):
            self._sheet.write_string(0, index, self._checked(column.name, index), head)
        self._sheet.freeze_panes(1, 0)

    def _write(self, rows: Sequence[Sequence[JsonValue | Missing]]) -> None:
        for row in rows:
            self._row += 1
            if self._row >= _ROWS_MAX:
                message = f"An Excel sheet holds {_ROWS_MAX - 1:,} rows below its header."
                raise InvalidError("rows_too_many", message, hint=_ELSEWHERE)
            for index, value in enumerate(row):
                if value is not None and value is not MISSING and value != "":
                    self._put(index, value)

    def _finish(self) -> None:
        from xlsxwriter.exceptions import XlsxFileError  # noqa: PLC0415 - as above

        assert self._book is not None, "the sink is entered"
        try:
            self._book.close()
        except XlsxFileError as error:  # wraps what the system said
            cause = error.args[0] if error.args else error
            raise cause if isinstance(cause, OSError) else OSError(str(error)) from error
        self._remove_folder()

    def _abandon(self) -> None:
        try:
            if self._sheet is not None:
                self._sheet._opt_close()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - to assemble a book nobody wants takes minutes
        finally:
            self._remove_folder()

    def _remove_folder(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def _put(self, index: int, value: JsonValue) -> None:
        sheet = self._sheet
        assert sheet is not None, "the sink is entered"
        if isinstance(value, bool):
            sheet.write_boolean(self._row, index, value)
        elif isinstance(value, (int, float)) and (
            isinstance(value, float) or abs(value) < _EXACT_MAX
        ):
            sheet.write_number(self._row, index, value)
        else:
            name = self._layout[index].type.name
            moment = _moment(value, name)
            if moment is not None:
                sheet.write_datetime(self._row, index, moment, self._formats[name])
            else:
                sheet.write_string(self._row, index, self._checked(cell_text(value, name), index))

    def _checked(self, text: str, index: int) -> str:
        """The text, if a cell can hold it; Excel counts UTF-16 code units."""
        if len(text) * 2 > _CHARS_MAX:
            length = len(text.encode("utf-16-le", "surrogatepass")) // 2
            if length > _CHARS_MAX:
                row = f"Row {self._row}" if self._row else "The header"
                where = f"{row}, column {self._layout[index].name[:80]!r}"
                message = f"{where} has {length:,} characters; an Excel cell holds {_CHARS_MAX:,}."
                raise InvalidError("cell_too_long", message, hint=_ELSEWHERE)
        return self._storable(text)


def _moment(value: JsonValue, name: TypeName) -> datetime | None:
    """A day or a moment as Excel can hold it, or None."""
    if name not in _MOMENTS or not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return None  # a text that a person kept
    try:
        moment = moment.astimezone(UTC).replace(tzinfo=None) if moment.tzinfo else moment
    except OverflowError:
        return None  # in UTC, it is before year 1 or after 9999
    return moment if moment >= _FIRST_DAY else None


_MOMENTS: Final = frozenset({TypeName.DATE, TypeName.DATETIME})
