"""Excel: text is always text, never a formula or a link; what Excel cannot hold is an error."""

# The package ships its types without stubs, some of them partial.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from everfill.kernel.errors import InvalidError
from everfill.tables.exports.sink import Sink, SinkColumn
from everfill.tables.types import TypeName
from everfill.tables.values import MISSING, JsonValue, Missing, to_text

if TYPE_CHECKING:
    from xlsxwriter.format import Format
    from xlsxwriter.workbook import Workbook
    from xlsxwriter.worksheet import Worksheet

__all__ = ["XlsxSink"]

_ROWS_MAX: Final = 1_048_576
_CHARS_MAX: Final = 32_767
_COLUMNS_MAX: Final = 16_384
_EXACT_MAX: Final = 10**15
_FIRST_YEAR: Final = 1900
_ELSEWHERE: Final = "Export to CSV or Parquet, which have no such limit."


class XlsxSink(Sink):
    """Writes a workbook of one sheet.

    Whole numbers beyond 15 digits, and days before 1900, are written as text, for Excel would
    change them. Moments are in UTC. Missing, null and the empty string are all an empty cell.
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
        self._row = 0

    def _open(self, part: Path) -> None:
        import xlsxwriter  # noqa: PLC0415 - an eighth of a second that only Excel files cost

        part.touch(exist_ok=False)  # an unwritable folder shows here, not at the end
        book = xlsxwriter.Workbook(
            part, {"constant_memory": True, "default_date_format": "yyyy-mm-dd"}
        )
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
        if self._book is not None:
            self._book.close()

    def _abandon(self) -> None:
        self._finish()

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
                sheet.write_string(self._row, index, self._checked(to_text(value), index))

    def _checked(self, text: str, index: int) -> str:
        """The text, if a cell can hold it; Excel counts UTF-16 code units."""
        if len(text) * 2 > _CHARS_MAX:
            length = len(text.encode("utf-16-le", "surrogatepass")) // 2
            if length > _CHARS_MAX:
                where = f"Row {self._row}, column {self._layout[index].name[:80]!r}"
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
    if moment.tzinfo is not None:
        moment = moment.astimezone(UTC).replace(tzinfo=None)
    return moment if moment.year >= _FIRST_YEAR else None


_MOMENTS: Final = frozenset({TypeName.DATE, TypeName.DATETIME})
