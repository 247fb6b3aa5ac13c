"""Parquet with a type for each column.

What a column turns out to hold is known only at the end (a number column may hold whole numbers,
fractions, or a text that a person kept), so rows are spooled first, and written with the narrowest
type that loses nothing: Int64, then Float64, then text.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, cast

import msgspec

from everfill.tables.exports.jsonl_sink import json_line
from everfill.tables.exports.sink import Sink, SinkColumn
from everfill.tables.parse import parse_json
from everfill.tables.types import TypeName
from everfill.tables.values import MISSING, JsonValue, Missing, to_text

if TYPE_CHECKING:
    import polars as pl

__all__ = ["ParquetSink"]

_PART_ROWS: Final = 50_000
_PART_BYTES: Final = 64 * 2**20
"""Of spooled text: rows may hold whole documents, and a part is in memory several times over."""
_SPOOL: Final = "spool.jsonl"
_INT64_MAX: Final = 2**63 - 1
_EXACT_MAX: Final = 2**53


@dataclass(slots=True)
class _Fit:
    """What a column's values fit so far."""

    type: TypeName
    typed: bool = True  # every value is of the column's type
    whole: bool = True  # every number is an integer
    wide: bool = False  # some integer is beyond what a double holds exactly

    def observe(self, value: JsonValue) -> None:
        """Take note of a value that is not null."""
        if self.type is TypeName.NUMBER:
            self._observe_number(value)
        elif self.typed:
            self.typed = _is_typed(value, self.type)

    def _observe_number(self, value: JsonValue) -> None:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            self.typed = False
        elif isinstance(value, float):
            self.whole = False
        elif abs(value) > _EXACT_MAX:
            self.wide = True
            self.typed = self.typed and abs(value) <= _INT64_MAX

    @property
    def as_text(self) -> bool:
        """Whether only text can hold all values."""
        return not self.typed or (self.wide and not self.whole)


class ParquetSink(Sink):
    """Writes Parquet.

    Numbers are Int64 or Float64, dates Date, moments Datetime in UTC, booleans Boolean, several
    labels List(String), vectors List(Float64), all else text (JSON as such). A column with a value
    that is not of its type is text as a whole, which a note says. Missing and null are null.
    """

    def __init__(self, path: Path, columns: Sequence[SinkColumn], *, with_status: bool) -> None:
        super().__init__(path, columns, with_status=with_status)
        self._fits = [_Fit(column.type.name) for column in self._layout]
        self._spool: BinaryIO | None = None
        self._rows = 0
        self._folder = self._part.with_suffix(".parts")

    def _open(self, part: Path) -> None:
        part.touch(exist_ok=False)  # the merge replaces it at the end
        self._folder.mkdir()
        self._spool = (self._folder / _SPOOL).open("xb")

    def _write(self, rows: Sequence[Sequence[JsonValue | Missing]]) -> None:
        assert self._spool is not None, "the sink is entered"
        plain = [[None if value is MISSING else value for value in row] for row in rows]
        for fit, values in zip(self._fits, zip(*plain, strict=True), strict=True):
            if fit.type not in _TEXTUAL:
                for value in values:
                    if value is not None:
                        fit.observe(value)
        self._spool.write(b"".join(map(json_line, plain)))
        self._rows += len(plain)

    def _finish(self) -> None:
        import polars as pl  # noqa: PLC0415 - half a second that only Parquet files cost

        assert self._spool is not None, "the sink is entered"
        self._spool.close()
        for column, fit in zip(self._layout, self._fits, strict=True):
            if fit.as_text:
                what = f"Column {column.name!r} holds values that are no {fit.type} Parquet knows"
                self._note(f"{what}; it is written as text.")
        rows_max = self._part_rows()
        parts = [self._write_part(*item) for item in enumerate(self._spooled(rows_max))]
        pl.scan_parquet(parts, glob=False).sink_parquet(self._part, row_group_size=rows_max)
        self._remove_folder()

    def _abandon(self) -> None:
        try:
            if self._spool is not None:
                self._spool.close()
        finally:
            self._remove_folder()

    def _remove_folder(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def _part_rows(self) -> int:
        """How many rows of the average size make a part, and a row group."""
        size_bytes = (self._folder / _SPOOL).stat().st_size
        return max(1, min(_PART_ROWS, self._rows * _PART_BYTES // max(size_bytes, 1)))

    def _spooled(self, rows_max: int) -> Iterator[list[list[JsonValue]]]:
        """The rows in parts, none far over its bounds; one empty part if there are none."""
        rows: list[list[JsonValue]] = []
        size_bytes, parts = 0, 0
        with (self._folder / _SPOOL).open("rb") as spool:
            for line in spool:
                rows.append(_decoded(line))
                size_bytes += len(line)
                if len(rows) == rows_max or size_bytes >= _PART_BYTES:
                    yield rows
                    rows, size_bytes, parts = [], 0, parts + 1
        if rows or not parts:
            yield rows

    def _write_part(self, number: int, rows: list[list[JsonValue]]) -> Path:
        import polars as pl  # noqa: PLC0415 - half a second that only Parquet files cost

        path = self._folder / f"{number:06}.parquet"
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(self._layout)
        pl.DataFrame(
            [
                pl.Series(
                    self._storable(column.name),
                    [None if value is None else self._converted(value, fit) for value in values],
                    dtype=_data_type(fit),
                )
                for column, fit, values in zip(self._layout, self._fits, columns, strict=True)
            ]
        ).write_parquet(path, compression="lz4")
        return path

    def _converted(self, value: JsonValue, fit: _Fit) -> object:
        if fit.type in _TEXTUAL or fit.as_text:
            plain = isinstance(value, str) and fit.type is not TypeName.JSON
            return self._storable(to_text(value) if plain else _json_text(value))
        match fit.type:
            case TypeName.NUMBER:
                return value if fit.whole else float(cast("float", value))
            case TypeName.DATE:
                return date.fromisoformat(cast("str", value))
            case TypeName.DATETIME:
                return datetime.fromisoformat(cast("str", value)).astimezone(UTC)
            case TypeName.CHOICES:
                return [self._storable(str(label)) for label in cast("list[JsonValue]", value)]
            case _:
                return value


_TEXTUAL: Final = frozenset(TypeName) - {
    TypeName.NUMBER,
    TypeName.BOOLEAN,
    TypeName.DATE,
    TypeName.DATETIME,
    TypeName.CHOICES,
    TypeName.VECTOR,
}


def _data_type(fit: _Fit) -> pl.DataType:
    import polars as pl  # noqa: PLC0415 - half a second that only Parquet files cost

    if fit.type in _TEXTUAL or fit.as_text:
        return pl.String()
    types: dict[TypeName, pl.DataType] = {
        TypeName.NUMBER: pl.Int64() if fit.whole else pl.Float64(),
        TypeName.BOOLEAN: pl.Boolean(),
        TypeName.DATE: pl.Date(),
        TypeName.DATETIME: pl.Datetime("us", "UTC"),
        TypeName.CHOICES: pl.List(pl.String()),
        TypeName.VECTOR: pl.List(pl.Float64()),
    }
    return types[fit.type]


def _is_typed(value: JsonValue, name: TypeName) -> bool:
    match name:
        case TypeName.BOOLEAN:
            return isinstance(value, bool)
        case TypeName.DATE | TypeName.DATETIME:
            return isinstance(value, str) and _is_moment(value, name)
        case TypeName.CHOICES:
            return isinstance(value, list) and all(isinstance(item, str) for item in value)
        case _:
            return isinstance(value, list) and all(map(_is_double, value))


def _is_double(item: JsonValue) -> bool:
    if isinstance(item, int):
        return not isinstance(item, bool) and abs(item) <= _EXACT_MAX
    return isinstance(item, float)


def _is_moment(text: str, name: TypeName) -> bool:
    try:
        if name is TypeName.DATE:
            date.fromisoformat(text)
            return True
        moment = datetime.fromisoformat(text)
        return moment.tzinfo is not None and moment.astimezone(UTC).year > 0
    except (ValueError, OverflowError):  # no date, or in UTC before year 1 or after 9999
        return False


def _json_text(value: JsonValue) -> str:
    return json_line(value)[:-1].decode()


def _decoded(line: bytes) -> list[JsonValue]:
    try:
        return msgspec.json.decode(line)
    except msgspec.MsgspecError:
        return cast("list[JsonValue]", parse_json(line.decode()))
