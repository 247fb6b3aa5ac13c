"""Values and places that an export must survive, or refuse without leaving anything behind."""

from __future__ import annotations

import csv
import json
import resource
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest
from python_calamine import CalamineWorkbook

from everfill.kernel.errors import InvalidError
from everfill.tables.exports import SinkColumn, SinkRow, open_sink
from everfill.tables.type_syntax import parse_type
from everfill.tables.values import MISSING, JsonValue, Missing

_SUFFIXES = ["csv", "tsv", "jsonl", "parquet", "xlsx"]
_FILE: JsonValue = {"name": "a, b.png", "mime": "image/png", "size_bytes": 3, "sha256": "0" * 64}


def _write(path: Path, spec: str, values: Sequence[JsonValue | Missing], name: str = "a") -> None:
    with open_sink(path, [SinkColumn(name=name, type=parse_type(spec))]) as sink:
        sink.write([SinkRow([value]) for value in values])


def _texts(path: Path) -> list[object]:
    """The values of the only column, below its header, in what its format calls text."""
    match path.suffix:
        case ".csv":
            with path.open(encoding="utf-8", newline="") as file:
                return [row[0] for row in csv.reader(file)][1:]
        case ".jsonl":
            return [json.loads(line)["a"] for line in path.read_text().splitlines()]
        case ".parquet":
            return pl.read_parquet(path)["a"].to_list()
        case _:
            sheet = CalamineWorkbook.from_path(path).get_sheet_by_index(0)
            return [row[0] for row in sheet.to_python()][1:]


@pytest.fixture
def small_disk() -> Iterator[None]:
    """No file may grow over 20,000 bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize(
    "moment", ["0001-01-01T00:00:00+02:00", "9999-12-31T23:00:00-02:00", "2024-01-31T10:00", "soon"]
)
@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_a_moment_that_a_format_cannot_say_is_kept_as_text(
    tmp_path: Path, suffix: str, moment: str
) -> None:
    path = tmp_path / f"out.{suffix}"
    _write(path, "datetime", ["2024-01-31T10:00:00+00:00", moment])
    assert _texts(path) == ["2024-01-31T10:00:00+00:00", moment]


def test_excel_has_no_moments_outside_its_calendar(tmp_path: Path) -> None:
    path = tmp_path / "out.xlsx"
    old = ["0001-01-01T00:00:00+02:00", "9999-12-31T23:00:00-02:00", "1900-02-28T00:00:00+00:00"]
    _write(path, "datetime", [*old, "1900-03-01T12:30:00+00:00"])
    assert _texts(path) == [*old, datetime(1900, 3, 1, 12, 30, tzinfo=UTC).replace(tzinfo=None)]


@pytest.mark.parametrize("suffix", ["csv", "parquet", "xlsx"])
def test_numbers_too_large_for_a_format_are_kept_to_the_last_digit(
    tmp_path: Path, suffix: str
) -> None:
    path = tmp_path / f"out.{suffix}"
    large = [2**63, -(2**70) - 1, 10**400]
    _write(path, "number", large)
    assert _texts(path) == [str(number) for number in large]
    _write(path, "vector", [[2**53 + 1, 0.5], [10**400]])
    assert [json.loads(str(text)) for text in _texts(path)] == [[2**53 + 1, 0.5], [10**400]]


def test_the_least_whole_number_of_a_type_is_a_number(tmp_path: Path) -> None:
    path = tmp_path / "out.parquet"
    _write(path, "number", [-(2**63) + 1, 2**63 - 1])
    assert _texts(path) == [-(2**63) + 1, 2**63 - 1]
    assert pl.read_parquet_schema(path)["a"] == pl.Int64


@pytest.mark.parametrize("suffix", ["csv", "xlsx"])
def test_a_file_is_its_name_in_a_sheet(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"out.{suffix}"
    _write(path, "image", [_FILE, "a text that a person kept"])
    assert _texts(path) == ["a, b.png", "a text that a person kept"]


def test_a_file_is_whole_in_json_lines_and_parquet(tmp_path: Path) -> None:
    _write(tmp_path / "out.jsonl", "image", [_FILE])
    assert _texts(tmp_path / "out.jsonl") == [_FILE]
    _write(tmp_path / "out.parquet", "image", [_FILE])
    assert [json.loads(str(text)) for text in _texts(tmp_path / "out.parquet")] == [_FILE]


@pytest.mark.parametrize("suffix", _SUFFIXES)
def test_a_header_may_hold_anything(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"out.{suffix}"
    _write(path, "text", ["x"], name='=a, "b"\n\x00\ud800')
    assert list(tmp_path.iterdir()) == [path]


def test_a_header_that_excel_cannot_hold_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match="The header, column 'aaa.* has 40,000 characters"):
        _write(tmp_path / "out.xlsx", "text", ["x"], name="a" * 40_000)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("suffix", _SUFFIXES)
@pytest.mark.usefixtures("small_disk")
@pytest.mark.parametrize("rows", [1, 40])
def test_a_full_disk_is_told_and_leaves_the_former_file(
    tmp_path: Path, suffix: str, rows: int
) -> None:
    path = tmp_path / f"out.{suffix}"
    path.write_text("former")
    with pytest.raises(InvalidError, match="cannot be written: File too large") as caught:
        _write(path, "text", [f"{row} {'x' * 25_000}" for row in range(rows)])
    assert caught.value.code == "output_unwritable"
    assert path.read_text() == "former"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("suffix", _SUFFIXES)
def test_a_fault_at_the_very_end_leaves_the_former_file(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise OSError(5, "Input/output error")

    path = tmp_path / f"out.{suffix}"
    path.write_text("former")
    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(InvalidError, match="Input/output error"):
        _write(path, "text", ["x"])
    assert path.read_text() == "former"
    assert list(tmp_path.iterdir()) == [path]


def test_parquet_keeps_few_large_rows_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("everfill.tables.exports.parquet_sink._PART_BYTES", 30_000)
    path = tmp_path / "out.parquet"
    values = [f"{row} {'x' * (10_000 if row < 9 else 10)}" for row in range(60)]
    _write(path, "text", values)
    assert _texts(path) == values


def test_a_lone_missing_value_keeps_its_row(tmp_path: Path) -> None:
    _write(tmp_path / "out.parquet", "text", ["x", MISSING, "", "y"])
    assert _texts(tmp_path / "out.parquet") == ["x", None, "", "y"]
    _write(tmp_path / "out.csv", "text", ["x", MISSING, "", "y"])
    assert (tmp_path / "out.csv").read_bytes() == b'a\nx\n\n""\ny\n'
