from __future__ import annotations

from pathlib import Path

import pytest

from everfill.kernel.errors import InvalidError
from everfill.tables.imports.jsonl_source import JsonlSource
from everfill.tables.values import MISSING


def _file(folder: Path, content: str) -> Path:
    path = folder / "table.jsonl"
    path.write_bytes(content.encode("utf-8", "surrogatepass"))
    return path


def _rows(source: JsonlSource) -> list[list[object]]:
    return [list(row.values) for batch in source.read(2) for row in batch]


def test_a_key_that_is_absent_is_missing_and_null_is_null(tmp_path: Path) -> None:
    source = JsonlSource(_file(tmp_path, '{"a":1}\n{"b":"","a":null}\n'), on_bad_row="stop")
    assert [column.name for column in source.columns] == ["a", "b"]
    assert _rows(source) == [[1, MISSING], [None, ""]]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["1", "2.5"], "number"),
        (["true", "null"], "boolean"),
        (['"007"', '"5"'], "text"),
        (['"2024-01-31"'], "date"),
        (['"2024-01-31T10:00:00Z"'], "datetime"),
        (['"https://example.org"'], "url"),
        (['"2024-01-31"', '""'], "text"),
        (["[1]", '{"a":1}'], "json"),
        (["1", '"x"'], "json"),
        (["true", "1"], "json"),
        (["null"], "text"),
    ],
)
def test_the_type_is_what_all_values_have_in_common(
    tmp_path: Path, values: list[str], kind: str
) -> None:
    content = "".join(f'{{"a": {value}}}\n' for value in values)
    source = JsonlSource(_file(tmp_path, content), on_bad_row="stop")
    assert source.columns[0].type.name == kind


def test_moments_get_an_offset_and_all_else_stays_as_it_is(tmp_path: Path) -> None:
    content = (
        '{"at":"2024-01-31T10:00:00","n":123456789012345678901234567890,"t":"\\ud800 \\u0000"}\n'
    )
    rows = _rows(JsonlSource(_file(tmp_path, content), on_bad_row="stop"))
    assert rows == [["2024-01-31T10:00:00+00:00", 123456789012345678901234567890, "\ud800 \x00"]]


def test_bad_lines_are_reported_and_keep_the_keys_of_the_others(tmp_path: Path) -> None:
    lines = ['{"a":1}', "[1]", "{bad", "", '{"a":NaN}', '{"a":1e999}', "[" * 100_000, '{"a":2}']
    path = _file(tmp_path, "\n".join(lines) + "\n")
    source = JsonlSource(path, on_bad_row="skip")
    keys = [(row.key, row.line) for batch in source.read(9) for row in batch]
    assert keys == [("1", 1), ("7", 8)]
    assert [bad.line for bad in source.bad_rows] == [2, 3, 5, 6, 7]
    with pytest.raises(InvalidError, match="lines 2, 3, 5, 6, 7"):
        JsonlSource(path, on_bad_row="stop")


@pytest.mark.parametrize("content", ["", "\n\n", "{}\n"])
def test_a_file_without_a_key_is_empty(tmp_path: Path, content: str) -> None:
    with pytest.raises(InvalidError) as caught:
        JsonlSource(_file(tmp_path, content), on_bad_row="stop")
    assert caught.value.code == "file_empty"


def test_keys_become_distinct_names(tmp_path: Path) -> None:
    source = JsonlSource(_file(tmp_path, '{"a":1," a":2,"":3}\n'), on_bad_row="stop")
    assert [column.name for column in source.columns] == ["a", "a_2", "column_3"]
    assert _rows(source) == [[1, 2, 3]]
