from __future__ import annotations

import io
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from everfill.kernel import limits
from everfill.kernel.errors import InvalidError, NotFoundError
from everfill.tables.imports import OnBadRow, open_source
from everfill.tables.imports.csv_source import CsvSource
from everfill.tables.imports.splitter import QUOTED_EMPTY, Splitter, physical_lines
from everfill.tables.values import MISSING

_CASES = Path(__file__).parent.parent / "cases" / "csv"


def _file(folder: Path, content: str | bytes, name: str = "table.csv") -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def _open(path: Path, on_bad_row: OnBadRow = "stop", **options: Any) -> CsvSource:
    return CsvSource(path, on_bad_row=on_bad_row, **options)


def _rows(source: CsvSource, rows_max: int = 2) -> list[list[object]]:
    return [list(row.values) for batch in source.read(rows_max) for row in batch]


def _types(source: CsvSource) -> list[str]:
    return [str(column.type.name) for column in source.columns]


def _names(source: CsvSource) -> list[str]:
    return [column.name for column in source.columns]


def _column(folder: Path, *cells: str, header: str = "a,b") -> CsvSource:
    """A comma-delimited file whose second column holds the cells."""
    quoted = "".join(f'{n},"{cell}"\n' if cell else f"{n},\n" for n, cell in enumerate(cells))
    return _open(_file(folder, f"{header}\n{quoted}"))


@pytest.mark.parametrize("name", sorted(path.stem for path in _CASES.glob("*.csv")))
def test_every_case_reads_as_expected(name: str) -> None:
    expected = json.loads((_CASES / f"{name}.expect.json").read_text("utf-8"))
    source = _open(_CASES / f"{name}.csv", "skip")
    rows = _rows(source)
    if "columns" in expected:
        assert _names(source) == expected["columns"]
    shown = [[None if value is MISSING else value for value in row] for row in rows]
    if "rows" in expected:
        assert shown == expected["rows"]
    assert source.row_count == len(rows)


def test_an_empty_string_and_nothing_between_commas_stay_apart() -> None:
    rows = _rows(_open(_CASES / "missing_vs_empty.csv"))
    assert rows == [["a", "", 1], ["b", MISSING, 2], ["c", "NULL", MISSING]]


def test_a_missing_number_is_missing_not_empty_and_not_zero() -> None:
    source = _open(_CASES / "gb18030.csv")
    assert _rows(source)[2] == ["深圳", MISSING]
    assert _types(source) == ["text", "number"]


def test_duplicate_and_empty_headers_become_distinct_names_and_it_is_told() -> None:
    source = _open(_CASES / "duplicate_headers.csv")
    assert _names(source) == ["name", "name_2", "column_3", "name_3"]
    assert sum("is called" in note for note in source.notes) == 3


def test_a_made_up_name_never_takes_that_of_another_header(tmp_path: Path) -> None:
    source = _open(_file(tmp_path, "a,a,a_2,,column_4\n1,2,3,4,5\n"))
    assert _names(source) == ["a", "a_3", "a_2", "column_5", "column_4"]


def test_ragged_rows_stop_the_import_before_it_begins_naming_their_lines() -> None:
    with pytest.raises(InvalidError, match="lines 3, 4") as caught:
        _open(_CASES / "ragged.csv", "stop")
    assert caught.value.code == "rows_invalid"


def test_ragged_rows_are_skipped_and_reported_and_no_value_moves() -> None:
    source = _open(_CASES / "ragged.csv", "skip")
    rows = [row for batch in source.read(10) for row in batch]
    assert [(row.key, tuple(row.values), row.line) for row in rows] == [
        ("1", (1, 2, 3), 2),
        ("4", (10, 11, 12), 5),
    ]
    assert [(bad.line, bad.expected, bad.got) for bad in source.bad_rows] == [(3, 3, 2), (4, 3, 4)]
    assert source.bad_row_count == 2


def test_bad_rows_are_counted_beyond_those_that_are_kept(tmp_path: Path) -> None:
    count = limits.BAD_ROWS_KEPT_MAX + 5
    source = _open(_file(tmp_path, "a,b\n" + "1\n" * count), "skip")
    assert _rows(source) == []
    assert (len(source.bad_rows), source.bad_row_count) == (limits.BAD_ROWS_KEPT_MAX, count)
    assert _rows(source) == []
    assert source.bad_row_count == count  # of the present reading, not of both


def test_a_big_cell_arrives_whole() -> None:
    rows = _rows(_open(_CASES / "big_cell.csv"))
    assert len(str(rows[0][1])) == 1_440_000
    assert rows[1][0] == 2


def test_text_that_looks_like_a_formula_is_text() -> None:
    source = _open(_CASES / "formula_injection.csv")
    assert _types(source) == ["number", "text"]
    assert [row[1] for row in _rows(source)] == ["=1+1", "@cmd", "-5", "+3"]


def test_the_lines_of_records_are_physical_lines(tmp_path: Path) -> None:
    source = _open(_file(tmp_path, 'a,b\n1,"x\ny\nz"\n\n2,w\n'))
    assert [(r.key, r.line) for batch in source.read(9) for r in batch] == [("1", 2), ("2", 6)]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_any_line_end_ends_a_line_and_stays_inside_quotation_marks(
    tmp_path: Path, end: str
) -> None:
    source = _open(_file(tmp_path, f'a,b{end}1,"x{end}y"{end}2,z{end}'))
    assert _rows(source) == [[1, f"x{end}y"], [2, "z"]]


def test_the_last_line_needs_no_end(tmp_path: Path) -> None:
    assert _rows(_open(_file(tmp_path, 'a,b\n1,"x"'))) == [[1, "x"]]


@pytest.mark.parametrize(
    ("content", "code", "words"),
    [
        ("", "file_empty", "no header"),
        ("\n1,2\n", "file_empty", "no header"),
        ('a,b\n1,2\n3,"open\n4,5\n', "quote_unclosed", "line 3"),
        ('a,b\n1,"x"y\n', "rows_invalid", "text after a closing quotation mark"),
    ],
)
def test_a_file_that_cannot_be_read_says_where_and_why(
    tmp_path: Path, content: str, code: str, words: str
) -> None:
    with pytest.raises(InvalidError, match=words) as caught:
        _open(_file(tmp_path, content))
    assert caught.value.code == code


def test_a_file_of_only_a_header_has_no_rows(tmp_path: Path) -> None:
    source = _open(_file(tmp_path, "a,b\n"))
    assert (_names(source), _types(source), _rows(source)) == (["a", "b"], ["text", "text"], [])


def test_quotation_marks_inside_a_field_are_text(tmp_path: Path) -> None:
    source = _open(_file(tmp_path, 'size,x\n5" pipe,say "hi"\n 7, "a, b"\n'))
    assert _rows(source) == [['5" pipe', 'say "hi"'], [" 7", "a, b"]]


def test_blank_lines_are_passed_over_but_are_rows_of_a_single_column(tmp_path: Path) -> None:
    assert _rows(_open(_file(tmp_path, "a,b\n\n1,2\n\n"))) == [[1, 2]]
    assert _rows(_open(_file(tmp_path, "a\nx\n\ny\n"))) == [["x"], [MISSING], ["y"]]


@pytest.mark.parametrize(
    ("delimiter", "name"), [(";", "semicolon"), ("\t", "tab"), ("|", "bar"), ("^", "'\\^'")]
)
def test_the_delimiter_is_found_and_told(tmp_path: Path, delimiter: str, name: str) -> None:
    lines = [["id", "text"], ["1", '"a, b"'], ["2", '"c, d"']]
    source = _open(_file(tmp_path, "".join(delimiter.join(line) + "\n" for line in lines)))
    assert _rows(source) == [[1, "a, b"], [2, "c, d"]]
    assert any(name.strip("'\\") in note for note in source.notes)


def test_commas_amid_text_do_not_pass_for_delimiters(tmp_path: Path) -> None:
    source = _open(_file(tmp_path, "id;text, short\n1;well, yes, no\n2;x\n"))
    assert _names(source) == ["id", "text, short"]
    assert _rows(source) == [[1, "well, yes, no"], [2, "x"]]


def test_a_spreadsheets_word_on_the_delimiter_is_heeded(tmp_path: Path) -> None:
    source = _open(_file(tmp_path, "sep=;\r\na;b\r\n1;2,5\r\n"))
    assert _rows(source) == [[1, 2.5]]
    assert [row.line for batch in source.read(5) for row in batch] == [3]


@pytest.mark.parametrize(
    ("cells", "kind", "values"),
    [
        (["1", "-2", ""], "number", [1, -2, MISSING]),
        (["1.5", "2", "1.2e-05"], "number", [1.5, 2, 0.000012]),
        (["3,50", "12,00"], "number", [3.5, 12.0]),
        (["1.234,50", "7"], "number", [1234.5, 7]),
        (["1,234.50", "1,234"], "number", [1234.5, 1234]),
        (["1,234,567", "1,234"], "number", [1_234_567, 1234]),
        (["€ 1,50", "€ 2"], "number", [1.5, 2]),
        (["12 %", "5%"], "number", [0.12, 0.05]),
        (["1,234", "2,345"], "number", [1234, 2345]),
        (["007", "10"], "text", ["007", "10"]),
        (["+49151", "5"], "text", ["+49151", "5"]),
        (["1234567890123456", "1"], "text", ["1234567890123456", "1"]),
        (["12E4", "5"], "text", ["12E4", "5"]),
        (["-0", "1"], "text", ["-0", "1"]),
        (["3,50", "1.5"], "text", ["3,50", "1.5"]),
        (["1,234", "1.234"], "text", ["1,234", "1.234"]),
        (["€ 5", "$ 7"], "text", ["€ 5", "$ 7"]),
        (["€ 5", "7"], "text", ["€ 5", "7"]),
        (["¥ 5", "¥ 7"], "text", ["¥ 5", "¥ 7"]),
        (["555 123 456"], "text", ["555 123 456"]),
        (["192.168.100.200"], "text", ["192.168.100.200"]),
        (["1 234,5", "1 234 567"], "number", [1234.5, 1_234_567]),
        (["true", "FALSE", ""], "boolean", [True, False, MISSING]),
        (["0", "1"], "number", [0, 1]),
        (["yes", "no"], "text", ["yes", "no"]),
        (["2024-01-31", ""], "date", ["2024-01-31", MISSING]),
        (["2024-01-31", "31.01.2024"], "text", ["2024-01-31", "31.01.2024"]),
        (["2024-02-30"], "text", ["2024-02-30"]),
        (["2024-01-31T10:00:00Z"], "datetime", ["2024-01-31T10:00:00+00:00"]),
        (["https://example.org/a"], "url", ["https://example.org/a"]),
        (["https://example.org/a", "n/a"], "text", ["https://example.org/a", "n/a"]),
        (["1", "n/a"], "text", ["1", "n/a"]),
        (["", ""], "text", [MISSING, MISSING]),
        (["NULL", "None"], "text", ["NULL", "None"]),
    ],
)
def test_the_type_of_a_column_loses_no_text(
    tmp_path: Path, cells: list[str], kind: str, values: list[object]
) -> None:
    source = _column(tmp_path, *cells)
    assert _types(source)[1] == kind
    assert [row[1] for row in _rows(source)] == values


def test_units_become_the_format_of_the_column(tmp_path: Path) -> None:
    assert _column(tmp_path, "€ 5", "7 €").columns[1].type.format == "EUR"
    assert _column(tmp_path, "5 %").columns[1].type.format == "percent"
    dollars = _column(tmp_path, "$5", "$1,234.50")
    assert dollars.columns[1].type.format == "USD"
    assert any("taken as USD" in note for note in dollars.notes)


def test_a_mark_that_could_be_either_is_decided_by_the_file_and_told(tmp_path: Path) -> None:
    comma = _open(_file(tmp_path, 'a,b\n1,"1,234"\n'))
    assert _rows(comma) == [[1, 1234]]
    assert any("decimal mark" in note for note in comma.notes)
    semicolon = _open(_file(tmp_path, "a;b\n1;1,234\n"))
    assert _rows(semicolon) == [[1, 1.234]]
    other_column = _open(_file(tmp_path, "a\tb\n3,5\t1,234\n"))
    assert _rows(other_column) == [[3.5, 1.234]]
    undecided = _open(_file(tmp_path, "a\tb\n1\t1,234\n"))
    assert _rows(undecided) == [[1, "1,234"]]
    assert any("kept as text" in note for note in undecided.notes)


def test_a_quoted_nothing_is_null_where_there_is_no_empty_value(tmp_path: Path) -> None:
    source = _open(_file(tmp_path, '"a","b"\n"1","x"\n"","y"\n,z\n'))
    assert _types(source) == ["number", "text"]
    assert _rows(source) == [[1, "x"], [None, "y"], [MISSING, "z"]]


def test_a_value_beyond_the_sample_that_does_not_fit_stays_text_and_is_told(
    tmp_path: Path,
) -> None:
    path = _file(tmp_path, "a\n" + "1\n" * 1_000 + "007\nx\n")
    source = _open(path, scan_bytes_max=10)
    rows = _rows(source, 500)
    assert _types(source) == ["number"]
    assert rows[0] == [1]
    assert rows[1_000:] == [["007"], ["x"]]
    assert any("2 value(s) are no number" in note for note in source.notes)
    assert source.row_count is None


def test_a_ragged_row_beyond_the_sample_ends_the_reading_where_it_stands(tmp_path: Path) -> None:
    source = _open(_file(tmp_path, "a,b\n" + "1,2\n" * 1_500 + "3\n"), scan_bytes_max=10)
    with pytest.raises(InvalidError, match="line 1502"):
        _rows(source, 100)


def test_a_reading_can_be_begun_again(tmp_path: Path) -> None:
    source = _open(_file(tmp_path, "a,b\n1,2\n3\n"), "skip")
    assert [_rows(source), source.bad_row_count] == [[[1, 2]], 1]
    assert [_rows(source), source.bad_row_count] == [[[1, 2]], 1]


async def test_batches_are_read_beside_the_event_loop(tmp_path: Path) -> None:
    source = open_source(_file(tmp_path, "a\n1\n2\n3\n"), on_bad_row="stop")
    batches = [[row.key for row in batch] async for batch in source.batches(2)]
    assert batches == [["1", "2"], ["3"]]


def test_an_unknown_format_names_those_that_are_known(tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match=r"\.parquet") as caught:
        open_source(_file(tmp_path, "x", "table.docx"), on_bad_row="stop")
    assert caught.value.code == "format_unknown"
    with pytest.raises(NotFoundError):
        open_source(tmp_path / "none.csv", on_bad_row="stop")
    with pytest.raises(NotFoundError):
        open_source(tmp_path / "none", on_bad_row="stop")


def test_a_header_with_too_many_columns_is_refused(tmp_path: Path) -> None:
    header = ",".join(f"c{n}" for n in range(limits.COLUMNS_MAX + 1))
    with pytest.raises(InvalidError) as caught:
        _open(_file(tmp_path, header + "\n"))
    assert caught.value.code == "columns_too_many"


def test_a_cell_over_the_limit_makes_its_row_bad() -> None:
    lines = iter(["1,aaaaaaaaaa\n", '2,"bbb\n', "bbb\n", 'bbbb"\n', "3,ä\n"])
    records = list(Splitter(lines, ",", cell_bytes_max=8))
    assert [(record.line, record.fault is None) for record in records] == [
        (1, False), (2, False), (5, True)
    ]  # fmt: skip
    assert "a cell over 8 bytes" in str(records[0].fault)


def test_a_line_without_end_is_refused_while_it_is_read(tmp_path: Path) -> None:
    path = _file(tmp_path, "a" * 2_000_000)
    with path.open(newline="") as text, pytest.raises(InvalidError, match="Line 1 is longer"):
        list(physical_lines(text, chars_max=1_000_000))


def test_lines_are_the_same_wherever_a_chunk_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _file(tmp_path, "ab\r\nc\rd\n\r\ne")
    for chars in range(1, 12):
        monkeypatch.setattr("everfill.tables.imports.splitter._CHUNK_CHARS", chars)
        with path.open(newline="") as text:
            assert list(physical_lines(text)) == ["ab\r\n", "c\r", "d\n", "\r\n", "e"]


_FIELDS = st.none() | st.text(
    alphabet=st.sampled_from('ab",;\n\r \té\x00') | st.characters(exclude_categories=["Cs"]),
    max_size=12,
)


def _written(field: str | None) -> str:
    """A field as a plain writer quotes it: always, so that nothing depends on ours."""
    return "" if field is None else '"' + field.replace('"', '""') + '"'


@given(st.lists(st.lists(_FIELDS, min_size=2, max_size=2), max_size=6))
def test_splitting_gives_back_any_fields(rows: list[list[str | None]]) -> None:
    text = "".join(",".join(map(_written, row)) + "\n" for row in rows)
    records = list(Splitter(iter(io.StringIO(text, newline="")), ","))
    fields = [
        [None if f == "" else "" if f == QUOTED_EMPTY else f for f in record.fields]
        for record in records
    ]
    assert fields == rows
    assert all(record.fault is None for record in records)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200), st.sampled_from(["stop", "skip"]))
def test_any_bytes_are_a_table_or_refused(
    tmp_path: Path, content: bytes, on_bad_row: OnBadRow
) -> None:
    path = _file(tmp_path, content)
    with suppress(InvalidError):  # and nothing else
        _rows(_open(path, on_bad_row))
