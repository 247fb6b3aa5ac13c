from __future__ import annotations

from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path

import polars as pl
import pytest

from everfill.kernel.errors import InvalidError
from everfill.tables.imports.parquet_source import ParquetSource


def _open(folder: Path, frame: pl.DataFrame) -> ParquetSource:
    path = folder / "table.parquet"
    frame.write_parquet(path, row_group_size=2)
    return ParquetSource(path, on_bad_row="stop")


@pytest.mark.parametrize(
    ("series", "kind", "values"),
    [
        (pl.Series([1, None]), "number", [1, None]),
        (pl.Series([2**64 - 1], dtype=pl.UInt64), "number", [2**64 - 1]),
        (pl.Series([1.5, float("nan"), float("inf")]), "number", [1.5, None, None]),
        (pl.Series([Decimal("1.10"), Decimal(2)]), "number", [1.1, 2]),
        (pl.Series(["a", "", None]), "text", ["a", "", None]),
        (pl.Series(["x", "y"], dtype=pl.Categorical), "text", ["x", "y"]),
        (pl.Series([True, None]), "boolean", [True, None]),
        (pl.Series([date(2024, 1, 31)]), "date", ["2024-01-31"]),
        (pl.Series([datetime(2024, 1, 31, 10)]), "datetime", ["2024-01-31T10:00:00+00:00"]),  # noqa: DTZ001 - without a zone on purpose
        (pl.Series([time(10, 30)]), "text", ["10:30:00"]),
        (pl.Series([timedelta(hours=1)]), "text", ["1:00:00"]),
        (pl.Series([b"\xff", None]), "text", ["/w==", None]),
        (pl.Series([["a"], [], None]), "json", [["a"], [], None]),
        (pl.Series([{"a": date(2024, 1, 1)}]), "json", [{"a": "2024-01-01"}]),
        (pl.Series([[1.0, 2.0], [3.0, 4.0]]), "vector", [[1.0, 2.0], [3.0, 4.0]]),
        (pl.Series([[1.0, 2.0], [3.0]]), "json", [[1.0, 2.0], [3.0]]),
        (pl.Series([None, None], dtype=pl.Null), "text", [None, None]),
    ],
)
def test_types_come_from_the_file(
    tmp_path: Path, series: pl.Series, kind: str, values: list[object]
) -> None:
    source = _open(tmp_path, pl.DataFrame({"a": series}))
    assert source.columns[0].type.name == kind
    assert [row.values[0] for batch in source.read(2) for row in batch] == values


def test_rows_come_in_order_in_batches_of_the_size_asked_for(tmp_path: Path) -> None:
    source = _open(tmp_path, pl.DataFrame({"a": list(range(50_001))}))
    batches = list(source.read(2_000))
    assert max(map(len, batches)) <= 2_000
    rows = [row for batch in batches for row in batch]
    assert [row.values[0] for row in rows] == list(range(50_001))
    assert rows[-1].key == "50001"
    assert source.row_count == 50_001


def test_a_moment_in_a_zone_keeps_its_offset(tmp_path: Path) -> None:
    moments = pl.Series([datetime(2024, 7, 1, 10)]).dt.replace_time_zone("Europe/Paris")  # noqa: DTZ001 - the zone comes next
    source = _open(tmp_path, pl.DataFrame({"a": moments}))
    assert next(source.read(1))[0].values == ["2024-07-01T10:00:00+02:00"]


def test_what_is_no_parquet_file_says_so(tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    path.write_bytes(b"PAR1 nothing")
    with pytest.raises(InvalidError) as caught:
        ParquetSource(path, on_bad_row="stop")
    assert caught.value.code == "file_unreadable"
