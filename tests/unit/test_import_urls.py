from __future__ import annotations

from pathlib import Path

import pytest

from everfill.kernel.errors import InvalidError
from everfill.tables.imports import open_source
from everfill.tables.imports.url_source import UrlSource


def _file(folder: Path, content: str) -> Path:
    path = folder / "pages.txt"
    path.write_text(content, "utf-8")
    return path


def test_addresses_are_rows_and_comments_and_blank_lines_are_not(tmp_path: Path) -> None:
    content = "# pages\nhttps://example.org/a\n\n  http://example.org/b  \n"
    source = open_source(_file(tmp_path, content), on_bad_row="stop")
    assert [(column.name, str(column.type.name)) for column in source.columns] == [("url", "url")]
    assert isinstance(source, UrlSource)
    rows = [row for batch in source.read(1) for row in batch]
    assert [(row.key, row.values[0], row.line) for row in rows] == [
        ("https://example.org/a", "https://example.org/a", 2),
        ("http://example.org/b", "http://example.org/b", 4),
    ]


def test_an_address_that_comes_again_has_a_key_of_its_own(tmp_path: Path) -> None:
    source = UrlSource(_file(tmp_path, "https://a.example\n" * 3), on_bad_row="stop")
    keys = [row.key for batch in source.read(9) for row in batch]
    assert keys == ["https://a.example", "https://a.example #2", "https://a.example #3"]


def test_lines_that_are_no_address_are_reported(tmp_path: Path) -> None:
    path = _file(tmp_path, "https://a.example\nftp://b.example\nnonsense\n")
    with pytest.raises(InvalidError, match="lines 2, 3"):
        UrlSource(path, on_bad_row="stop")
    source = UrlSource(path, on_bad_row="skip")
    assert [row.key for batch in source.read(9) for row in batch] == ["https://a.example"]
    assert [bad.line for bad in source.bad_rows] == [2, 3]


def test_a_text_without_any_address_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidError) as caught:
        UrlSource(_file(tmp_path, "Dear reader,\nthis is a letter.\n"), on_bad_row="skip")
    assert caught.value.code == "file_empty"
