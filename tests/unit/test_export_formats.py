from __future__ import annotations

import json
import zipfile
from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from everfill.kernel.errors import InvalidError
from everfill.tables.exports import SinkColumn, SinkRow, check_target, open_sink
from everfill.tables.imports import open_source
from everfill.tables.imports.source import SyncSource
from everfill.tables.type_syntax import parse_type
from everfill.tables.values import MISSING, JsonValue, Missing

_CASES = Path(__file__).parent.parent / "cases" / "csv"
_SUFFIXES = ["csv", "tsv", "jsonl", "parquet", "xlsx"]
_Row = Sequence["JsonValue | Missing"]


def _columns(**types: str) -> list[SinkColumn]:
    return [SinkColumn(name=name, type=parse_type(spec)) for name, spec in types.items()]


def _write(path: Path, columns: list[SinkColumn], rows: Sequence[_Row]) -> list[str]:
    with open_sink(path, columns) as sink:
        for row in rows:
            sink.write([SinkRow(row)])
    return sink.notes


def _read(path: Path) -> list[list[Any]]:
    source = open_source(path, on_bad_row="stop")
    assert isinstance(source, SyncSource)
    return [list(row.values) for batch in source.read(2) for row in batch]


def _null(rows: Sequence[_Row]) -> list[list[Any]]:
    return [[None if value is MISSING else value for value in row] for row in rows]


@pytest.mark.parametrize("suffix", _SUFFIXES)
@pytest.mark.parametrize("name", ["formula_injection", "utf8_bom", "gb18030", "leading_zeros"])
def test_a_case_read_written_and_read_again_is_the_same(
    tmp_path: Path, name: str, suffix: str
) -> None:
    source = open_source(_CASES / f"{name}.csv", on_bad_row="stop")
    assert isinstance(source, SyncSource)
    columns = [SinkColumn(name=column.name, type=column.type) for column in source.columns]
    rows = [row.values for batch in source.read(9) for row in batch]
    path = tmp_path / f"out.{suffix}"
    _write(path, columns, rows)
    assert _null(_read(path)) == _null(rows)


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "parquet"])
def test_a_big_cell_is_written_byte_for_byte(tmp_path: Path, suffix: str) -> None:
    source = open_source(_CASES / "big_cell.csv", on_bad_row="stop")
    assert isinstance(source, SyncSource)
    rows = [row.values for batch in source.read(9) for row in batch]
    path = tmp_path / f"out.{suffix}"
    _write(path, _columns(id="number", text="text"), rows)
    assert _null(_read(path)) == _null(rows)


def test_csv_tells_the_empty_string_from_nothing(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    _write(path, _columns(a="text", b="text"), [["", MISSING], [None, "x"]])
    assert path.read_bytes() == b'a,b\n"",\n,x\n'
    assert _read(path) == [["", MISSING], [MISSING, "x"]]


def test_csv_writes_values_as_they_read(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    columns = _columns(a="number", b="boolean", c="choices(x,y)", d="json", e="text")
    _write(
        path, columns, [[1, True, ["x", "y"], {"k": "ü"}, "=1+1"], [2.5, False, [], None, "a,b"]]
    )
    assert path.read_text("utf-8") == (
        'a,b,c,d,e\n1,true,"[""x"", ""y""]","{""k"": ""ü""}",=1+1\n2.5,false,[],,"a,b"\n'
    )


def test_jsonl_tells_absent_null_and_empty_apart(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    rows: list[_Row] = [["", MISSING, None], ["\ud800\x00", [1.5], {"a": None}]]
    _write(path, _columns(a="text", b="json", c="json"), rows)
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    assert lines == [{"a": "", "c": None}, {"a": "\ud800\x00", "b": [1.5], "c": {"a": None}}]
    assert _read(path) == [["", None, MISSING], ["\ud800\x00", {"a": None}, [1.5]]]


def test_parquet_has_a_type_for_each_column(tmp_path: Path) -> None:
    path = tmp_path / "out.parquet"
    columns = _columns(
        t="text", i="number", f="number", b="boolean", d="date", m="datetime",
        c="choice(x)", cs="choices(x,y)", v="vector(2)", j="json",
    )  # fmt: skip
    full: _Row = ["a", 1, 2, True, "2024-01-31", "2024-01-31T10:00:00+02:00", "x", ["x"], [1.0, 2], {"k": 1}]  # fmt: skip  # noqa: E501
    rows: list[_Row] = [full, ["", 2, 2.5, *[None] * 7], [MISSING] * 10]
    assert _write(path, columns, rows) == []
    frame = pl.read_parquet(path)
    assert list(frame.schema.values()) == [
        pl.String, pl.Int64, pl.Float64, pl.Boolean, pl.Date, pl.Datetime("us", "UTC"),
        pl.String, pl.List(pl.String), pl.List(pl.Float64), pl.String,
    ]  # fmt: skip
    assert frame.row(0) == (
        "a", 1, 2.0, True, date(2024, 1, 31), datetime(2024, 1, 31, 8, tzinfo=UTC),
        "x", ["x"], [1.0, 2.0], '{"k":1}',
    )  # fmt: skip
    assert frame.row(1) == ("", 2, 2.5, *[None] * 7)
    assert frame.row(2) == (None,) * 10


@pytest.mark.parametrize(
    ("spec", "values", "written"),
    [
        ("number", [1, "five"], ["1", "five"]),
        ("number", [2**70], ["1180591620717411303424"]),
        ("number", [2**60, 0.5], ["1152921504606846976", "0.5"]),
        ("date", ["2024-01-31", "soon"], ["2024-01-31", "soon"]),
        ("boolean", [True, "maybe"], ["true", "maybe"]),
        ("vector(1)", [[1.0], "none"], ["[1.0]", "none"]),
    ],
)
def test_parquet_loses_no_value_that_is_not_of_its_columns_type(
    tmp_path: Path, spec: str, values: list[JsonValue], written: list[str]
) -> None:
    path = tmp_path / "out.parquet"
    notes = _write(path, _columns(a=spec), [[value] for value in values])
    assert pl.read_parquet(path)["a"].to_list() == written
    assert any("written as text" in note for note in notes)


def test_parquet_is_written_in_parts_and_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("everfill.tables.exports.parquet_sink._PART_ROWS", 10)
    path = tmp_path / "out.parquet"
    _write(path, _columns(a="number"), [[n] for n in range(35)])
    assert pl.read_parquet(path)["a"].to_list() == list(range(35))


def test_excel_takes_no_text_for_a_formula_or_a_link(tmp_path: Path) -> None:
    path = tmp_path / "out.xlsx"
    texts = ["=1+1", "@cmd", "-5", "+3", "https://example.org", "007", "{=A1}", "_x000D_", "\x01"]
    _write(path, _columns(a="text"), [[text] for text in texts])
    assert [row[0] for row in _read(path)] == texts
    with zipfile.ZipFile(path) as archive:
        sheet = archive.read("xl/worksheets/sheet1.xml").decode()
    assert "<f>" not in sheet
    assert "hyperlink" not in sheet


def test_excel_has_days_moments_and_numbers(tmp_path: Path) -> None:
    path = tmp_path / "out.xlsx"
    columns = _columns(d="date", m="datetime", n="number", b="boolean", old="date", id="number")
    row: _Row = ["2024-01-31", "2024-01-31T10:00:00+02:00", 2.5, True, "1789-07-14", 2**60]
    _write(path, columns, [row])
    expected = ["2024-01-31", "2024-01-31T08:00:00+00:00", 2.5, True, "1789-07-14", str(2**60)]
    assert _read(path) == [expected]


def test_what_excel_cannot_hold_is_an_error_that_names_the_cell(tmp_path: Path) -> None:
    path = tmp_path / "out.xlsx"
    _write(path, _columns(a="text"), [["x" * 32_767]])
    with pytest.raises(InvalidError, match="Row 2, column 'note' has 32,768 characters") as caught:
        _write(path, _columns(a="text", note="text"), [["x", "y"], ["x", "y" * 32_768]])
    assert caught.value.code == "cell_too_long"
    assert "CSV or Parquet" in str(caught.value)
    assert [len(row[0]) for row in _read(path)] == [32_767]  # the former file is still there


def test_excel_says_when_there_are_too_many_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("everfill.tables.exports.xlsx_sink._ROWS_MAX", 3)
    with pytest.raises(InvalidError, match="2 rows below its header"):
        _write(tmp_path / "out.xlsx", _columns(a="number"), [[1], [2], [3]])


@pytest.mark.parametrize("suffix", _SUFFIXES)
def test_a_failed_export_leaves_the_former_file_and_nothing_else(
    tmp_path: Path, suffix: str
) -> None:
    path = tmp_path / f"out.{suffix}"
    path.write_bytes(b"former")
    with (  # noqa: PT012 - what happens inside the block is what is tested
        pytest.raises(RuntimeError, match="stopped"),
        open_sink(path, _columns(a="text")) as sink,
    ):
        sink.write([SinkRow(["x"])])
        raise RuntimeError("stopped")
    assert path.read_bytes() == b"former"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("suffix", _SUFFIXES)
def test_a_file_appears_only_when_it_is_whole(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / "new" / "folder" / f"out.{suffix}"
    with open_sink(path, _columns(a="text")) as sink:
        sink.write([SinkRow(["x"])])
        assert not path.exists()
    assert list(path.parent.iterdir()) == [path]
    assert _read(path) == [["x"]]


@pytest.mark.parametrize("suffix", ["csv", "parquet", "xlsx"])
def test_a_table_without_rows_keeps_its_columns(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"out.{suffix}"
    _write(path, _columns(a="text", b="number"), [])
    source = open_source(path, on_bad_row="stop")
    assert [column.name for column in source.columns] == ["a", "b"]
    assert _read(path) == []


@pytest.mark.parametrize("suffix", _SUFFIXES)
def test_statuses_follow_their_columns(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"out.{suffix}"
    columns = [
        SinkColumn(name="a", type=parse_type("text")),
        SinkColumn(name="b", type=parse_type("number"), computed=True),
        SinkColumn(name="b.error", type=parse_type("text")),
    ]
    with open_sink(path, columns, with_status=True) as sink:
        sink.write([SinkRow(["x", 5, "own"], [None, "ready", None], [None, None, None])])
        sink.write([SinkRow(["y", MISSING, "own"], [None, "failed", None], [None, "no key", None])])
    source = open_source(path, on_bad_row="stop")
    names = [column.name for column in source.columns]
    rows = [dict(zip(names, row, strict=True)) for row in _null(_read(path))]
    assert rows == [
        {"a": "x", "b": 5, "b.status": "ready", "b.error_2": None, "b.error": "own"},
        {"a": "y", "b": None, "b.status": "failed", "b.error_2": "no key", "b.error": "own"},
    ]


@pytest.mark.parametrize("suffix", ["csv", "parquet", "xlsx"])
def test_half_a_surrogate_pair_is_replaced_and_told(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"out.{suffix}"
    notes = _write(path, _columns(a="text"), [["x\ud800y"]])
    assert _read(path) == [["x\ufffdy"]]
    assert any("U+FFFD" in note for note in notes)


def test_an_unknown_format_names_those_that_are_known(tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match=r"\.parquet") as caught:
        open_sink(tmp_path / "out.docx", _columns(a="text"))
    assert caught.value.code == "format_unknown"


def test_a_place_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "file" / "out.csv", tmp_path / "dir.csv"):
        (tmp_path / "dir.csv").mkdir(exist_ok=True)
        with pytest.raises(InvalidError) as caught, open_sink(path, _columns(a="text")):
            pass
        assert caught.value.code == "output_unwritable"


_TEXTS = st.none() | st.text(
    alphabet=st.sampled_from('ab",;|\n\r \té=\x00') | st.characters(exclude_categories=["Cs"]),
    max_size=10,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.lists(st.lists(_TEXTS, min_size=2, max_size=2), max_size=5), st.sampled_from(["csv", "tsv"])
)
def test_any_text_comes_back_from_a_delimited_file(
    tmp_path: Path, rows: list[list[str | None]], suffix: str
) -> None:
    # A last row of plain words keeps the columns text: a lone "5" would come back as a number.
    table = [*rows, ["plain", "words"]]
    path = tmp_path / f"out.{suffix}"
    _write(path, _columns(a="text", b="text"), table)
    assert _null(_read(path)) == table


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.lists(_TEXTS, min_size=1, max_size=1), min_size=1, max_size=5))
def test_any_text_comes_back_from_json_lines(tmp_path: Path, rows: list[list[str | None]]) -> None:
    path = tmp_path / "out.jsonl"
    table = [*rows, ["words"]]
    _write(path, _columns(a="text"), table)
    assert _read(path) == table


@pytest.mark.parametrize(
    ("target", "source", "code"),
    [
        ("table.csv", "table.csv", "output_is_input"),
        ("docs/../table.csv", "table.csv", "output_is_input"),
        ("docs/deep/out.csv", "docs", "output_is_input"),
        ("folder.csv", "table.csv", "output_unwritable"),
        ("table.csv/out.csv", "other.csv", "output_unwritable"),
        ("out.foo", "table.csv", "format_unknown"),
    ],
)
def test_a_target_that_cannot_take_the_table_is_refused_before_any_work(
    tmp_path: Path, target: str, source: str, code: str
) -> None:
    (tmp_path / "table.csv").touch()
    for folder in ("docs", "folder.csv"):
        (tmp_path / folder).mkdir()
    with pytest.raises(InvalidError) as caught:
        check_target(tmp_path / target, tmp_path / source)
    assert caught.value.code == code


def test_a_target_beside_its_source_or_in_a_new_folder_is_fine(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    check_target(tmp_path / "docs.csv", tmp_path / "docs")
    check_target(tmp_path / "new" / "out.csv", tmp_path / "docs")
