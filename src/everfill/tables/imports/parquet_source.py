"""Parquet: types as the file declares them, read row group by row group."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Final

from everfill.kernel.errors import InvalidError
from everfill.tables.imports.names import distinct_names
from everfill.tables.imports.source import OnBadRow, SourceColumn, SourceRow, SyncSource
from everfill.tables.infer_values import fit_value
from everfill.tables.types import ColumnType, TypeName
from everfill.tables.values import JsonValue

if TYPE_CHECKING:
    import polars as pl

__all__ = ["ParquetSource"]

_CHUNK_ROWS: Final = 20_000


class ParquetSource(SyncSource):
    """A Parquet file.

    Whole and decimal numbers are numbers, dates and moments keep their kind (a moment without a
    zone is UTC), lists of floats of one length are vectors, other nested values are JSON, bytes are
    text in base64. Null is null; NaN and the infinities, which JSON cannot say, are null too.

    Raises:
        InvalidError: `file_unreadable`.
    """

    def __init__(self, path: Path, *, on_bad_row: OnBadRow) -> None:
        super().__init__(size_bytes=path.stat().st_size, on_bad_row=on_bad_row)
        self._path = path
        frame, schema = _opened(path)
        names, renamings = distinct_names(list(schema))
        self.columns = tuple(
            SourceColumn(name=name, type=_type(frame, header, data_type))
            for name, (header, data_type) in zip(names, schema.items(), strict=True)
        )
        for renaming in renamings:
            self._note(renaming)
        self._note_conversions(schema)
        self.row_count = _row_count(frame)

    def read(self, rows_max: int) -> Iterator[list[SourceRow]]:
        """Read all rows from the start, at most `rows_max` at a time."""
        self._bad.clear()
        frame, schema = _opened(self._path)
        selected = frame.select(
            [_readable(header, data_type) for header, data_type in schema.items()]
        )
        types = [column.type.name for column in self.columns]
        number = 0
        for chunk in selected.collect_batches(chunk_size=_CHUNK_ROWS, engine="streaming"):
            for part in chunk.iter_slices(rows_max):
                batch: list[SourceRow] = []
                for row in part.rows():
                    number += 1
                    values = [_value(cell, name) for cell, name in zip(row, types, strict=True)]
                    batch.append(SourceRow(str(number), values, number))
                yield batch

    def _note_conversions(self, schema: pl.Schema) -> None:
        import polars as pl  # noqa: PLC0415 - half a second that only Parquet files cost

        for header, data_type in schema.items():
            if data_type == pl.Binary:
                self._note(f"Column {header!r} holds bytes; they are imported as base64 text.")
            if isinstance(data_type, pl.Datetime) and data_type.time_zone is None:
                self._note(f"Column {header!r}: moments without an offset are taken as UTC.")


def _opened(path: Path) -> tuple[pl.LazyFrame, pl.Schema]:
    import polars as pl  # noqa: PLC0415 - half a second that only Parquet files cost

    try:
        frame = pl.scan_parquet(path, glob=False)
        return frame, frame.collect_schema()
    except (pl.exceptions.PolarsError, OSError) as error:
        message = f"{path.name} is no readable Parquet file: {str(error).splitlines()[0]}"
        raise InvalidError("file_unreadable", message, hint="Write it again.") from error


def _row_count(frame: pl.LazyFrame) -> int:
    import polars as pl  # noqa: PLC0415 - half a second that only Parquet files cost

    return int(frame.select(pl.len()).collect(engine="streaming").item())


def _type(frame: pl.LazyFrame, header: str, data_type: pl.DataType) -> ColumnType:
    import polars as pl  # noqa: PLC0415 - half a second that only Parquet files cost

    if data_type.is_numeric():
        return ColumnType(name=TypeName.NUMBER)
    if data_type.is_nested():
        length = _vector_length(frame, header, data_type)
        name = TypeName.VECTOR if length else TypeName.JSON
        return ColumnType(name=name, dimensions=length)
    simple: dict[object, TypeName] = {
        pl.Boolean: TypeName.BOOLEAN,
        pl.Date: TypeName.DATE,
        pl.Datetime: TypeName.DATETIME,
    }
    return ColumnType(name=simple.get(data_type.base_type(), TypeName.TEXT))


def _vector_length(frame: pl.LazyFrame, header: str, data_type: pl.DataType) -> int | None:
    """The one length of all lists of finite floats, if that is what the column holds."""
    import polars as pl  # noqa: PLC0415 - half a second that only Parquet files cost

    inner = getattr(data_type, "inner", None)
    if inner not in (pl.Float32, pl.Float64):
        return None
    column = pl.col(header)
    if isinstance(data_type, pl.Array):
        column = column.arr.to_list()
    finite = column.list.eval(pl.element().is_finite().fill_null(value=False)).list.all()
    found = frame.select(
        shortest=column.list.len().min(), longest=column.list.len().max(), finite=finite.all()
    ).collect(engine="streaming")
    shortest, longest, all_finite = found.row(0)
    return longest if all_finite and longest and shortest == longest else None


def _readable(header: str, data_type: pl.DataType) -> pl.Expr:
    import polars as pl  # noqa: PLC0415 - half a second that only Parquet files cost

    column = pl.col(header)
    if data_type == pl.Binary:
        return column.bin.encode("base64")
    if data_type.is_float():
        return pl.when(column.is_finite()).then(column)
    return column


def _value(cell: object, name: TypeName) -> JsonValue:
    if isinstance(cell, Decimal):
        return int(cell) if cell == cell.to_integral_value() else float(cell)
    return fit_value(cell, name)
