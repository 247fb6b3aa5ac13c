from __future__ import annotations

import zipfile
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import xlsxwriter

from everfill.kernel import limits
from everfill.kernel.errors import InvalidError
from everfill.tables.imports import open_source
from everfill.tables.imports.xlsx_source import XlsxSource, check_workbook
from everfill.tables.values import MISSING


def _book(folder: Path, fill: Callable[[Any, Any], None]) -> Path:
    path = folder / "table.xlsx"
    book = xlsxwriter.Workbook(path)
    fill(book, book.add_worksheet("First"))
    book.close()
    return path


def _rows(source: XlsxSource) -> list[list[object]]:
    return [list(row.values) for batch in source.read(2) for row in batch]


def test_cells_keep_their_types(tmp_path: Path) -> None:
    def fill(book: Any, sheet: Any) -> None:
        day = book.add_format({"num_format": "yyyy-mm-dd"})
        moment = book.add_format({"num_format": "yyyy-mm-dd hh:mm"})
        sheet.write_row(0, 0, ["n", "f", "code", "day", "at", "ok"])
        for line in (1, 2):
            sheet.write_number(line, 0, 5)
            sheet.write_number(line, 1, 1.5)
            sheet.write_string(line, 2, "007")
            sheet.write_datetime(line, 3, datetime(2024, 1, 31), day)  # noqa: DTZ001 - Excel knows no zones
            sheet.write_datetime(line, 4, datetime(2024, 1, 31, 10, 30), moment)  # noqa: DTZ001 - the same
            sheet.write_boolean(line, 5, True)  # noqa: FBT003 - the package's own signature

    source = XlsxSource(_book(tmp_path, fill), on_bad_row="stop")
    assert [column.type.name for column in source.columns] == [
        "number", "number", "text", "date", "datetime", "boolean",
    ]  # fmt: skip
    expected = [5, 1.5, "007", "2024-01-31", "2024-01-31T10:30:00+00:00", True]
    assert _rows(source) == [expected, expected]


def test_empty_cells_are_missing_and_empty_rows_are_passed_over(tmp_path: Path) -> None:
    def fill(_: Any, sheet: Any) -> None:
        sheet.write_row(2, 1, ["a", "b"])
        sheet.write_row(3, 1, [1])
        sheet.write_row(5, 2, ["x"])

    source = XlsxSource(_book(tmp_path, fill), on_bad_row="stop")
    assert _rows(source) == [[1, MISSING], [MISSING, "x"]]
    assert [(r.key, r.line) for batch in source.read(9) for r in batch] == [("1", 4), ("2", 6)]


def test_a_column_of_several_kinds_is_text_and_it_is_told(tmp_path: Path) -> None:
    def fill(_: Any, sheet: Any) -> None:
        for line, value in enumerate(["mixed", 5, "five", 2.5]):
            sheet.write(line, 0, value)

    source = XlsxSource(_book(tmp_path, fill), on_bad_row="stop")
    assert _rows(source) == [["5"], ["five"], ["2.5"]]
    assert any("several kinds" in note for note in source.notes)


def test_cells_beyond_the_header_get_a_column_of_their_own(tmp_path: Path) -> None:
    def fill(_: Any, sheet: Any) -> None:
        sheet.write_row(0, 0, ["a", 2024])
        sheet.write_row(1, 0, [1, 2, 3])

    source = XlsxSource(_book(tmp_path, fill), on_bad_row="stop")
    assert [column.name for column in source.columns] == ["a", "2024", "column_3"]
    assert _rows(source) == [[1, 2, 3]]


def test_a_sheet_is_chosen_by_name(tmp_path: Path) -> None:
    def fill(book: Any, sheet: Any) -> None:
        sheet.write_row(0, 0, ["a"])
        book.add_worksheet("Second").write_row(0, 0, ["b"])

    path = _book(tmp_path, fill)
    first = open_source(path, on_bad_row="stop")
    assert first.columns[0].name == "a"
    assert any("'First'" in note for note in first.notes)
    assert open_source(path, on_bad_row="stop", sheet="Second").columns[0].name == "b"
    with pytest.raises(InvalidError, match="First, Second"):
        open_source(path, on_bad_row="stop", sheet="Third")


def test_an_empty_sheet_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidError) as caught:
        XlsxSource(_book(tmp_path, lambda _book, _sheet: None), on_bad_row="stop")
    assert caught.value.code == "file_empty"


def test_a_zip_bomb_is_refused_before_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "bomb.xlsx"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/worksheets/sheet1.xml", b" " * 3_000_000)
    monkeypatch.setattr(limits, "XLSX_UNPACKED_BYTES_MAX", 2_000_000)
    with pytest.raises(InvalidError, match="unpacks to over 2,000,000 bytes") as caught:
        check_workbook(path)
    assert caught.value.code == "file_too_large"


def test_two_cells_at_the_far_ends_of_a_sheet_are_refused(tmp_path: Path) -> None:
    def fill(_: Any, sheet: Any) -> None:
        sheet.write(0, 0, "a")
        sheet.write(1_048_575, 16_383, "z")

    with pytest.raises(InvalidError, match="16,384 x 1,048,576 cells") as caught:
        XlsxSource(_book(tmp_path, fill), on_bad_row="stop")
    assert caught.value.code == "file_too_large"


@pytest.mark.parametrize("content", [b"", b"PK nothing", b"<html></html>"])
def test_what_is_no_workbook_says_so(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "table.xlsx"
    path.write_bytes(content)
    with pytest.raises(InvalidError) as caught:
        XlsxSource(path, on_bad_row="stop")
    assert caught.value.code == "file_unreadable"
