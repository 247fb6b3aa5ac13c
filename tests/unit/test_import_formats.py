"""Reading JSON lines, Parquet, workbooks, folders and lists of addresses; and refusing the rest."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import zipfile
from datetime import UTC, date, datetime
from pathlib import Path

import polars as pl
import pytest
import xlsxwriter

from everfill.kernel import limits
from everfill.kernel.errors import InvalidError, NotFoundError
from everfill.tables.imports import SUPPORTED_SUFFIXES, Source, SourceRow, open_source
from everfill.tables.values import MISSING

PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x06\x00\x00\x00"


class Sink:
    """Takes files and remembers which."""

    def __init__(self) -> None:
        self.names: list[str] = []

    async def put_file(self, path: Path) -> str:
        self.names.append(path.name)
        return await asyncio.to_thread(_sha256, path)


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


async def read(source: Source, rows_max: int = 1_000) -> list[SourceRow]:
    return [row async for batch in source.batches(rows_max) for row in batch]


def names(source: Source) -> list[str]:
    return [column.name for column in source.columns]


def types(source: Source) -> list[str]:
    return [str(column.type.name) for column in source.columns]


def values(rows: list[SourceRow]) -> list[list[object]]:
    return [list(row.values) for row in rows]


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def workbook(path: Path, **sheets: list[list[object]]) -> Path:
    with xlsxwriter.Workbook(path) as book:
        day = book.add_format({"num_format": "yyyy-mm-dd"})
        for name, rows in sheets.items():
            sheet = book.add_worksheet(name)
            for at, row in enumerate(rows):
                for column, cell in enumerate(row):
                    if isinstance(cell, date):
                        sheet.write_datetime(at, column, cell, day)
                    elif cell is not None:
                        sheet.write(at, column, cell)
    return path


async def test_json_lines_have_the_columns_of_all_keys_and_tell_absent_from_null(
    tmp_path: Path,
) -> None:
    text = '{"b":1,"a":null}\n\n{"a":"","c":{"d":[1]}}\n{"b":2.5,"a":"x","e":true}\n'
    source = open_source(write(tmp_path / "t.jsonl", text), on_bad_row="stop")
    rows = await read(source)
    assert names(source) == ["b", "a", "c", "e"]
    assert types(source) == ["number", "text", "json", "boolean"]
    assert values(rows) == [
        [1, None, MISSING, MISSING],
        [MISSING, "", {"d": [1]}, MISSING],
        [2.5, "x", MISSING, True],
    ]
    assert [(row.key, row.line) for row in rows] == [("1", 1), ("2", 3), ("3", 4)]


async def test_json_lines_keep_text_that_looks_like_a_number(tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", '{"zip":"02139"}\n{"zip":"5"}\n')
    source = open_source(path, on_bad_row="stop")
    assert types(source) == ["text"]
    assert values(await read(source)) == [["02139"], ["5"]]


async def test_a_bad_line_of_json_stops_or_is_passed_over(tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", '{"a":1}\n{"a":\n[1]\n{"a":2}\n')
    source = open_source(path, on_bad_row="skip")
    rows = await read(source)
    assert [(row.key, row.values[0]) for row in rows] == [("1", 1), ("4", 2)]
    assert [bad.line for bad in source.bad_rows] == [2, 3]
    with pytest.raises(InvalidError, match="2, 3"):
        open_source(path, on_bad_row="stop")


async def test_parquet_keeps_kinds_and_nulls(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pl.DataFrame(
        {
            "n": [1, None, 3],
            "t": ["", "007", None],
            "d": [date(2026, 1, 31), None, date(2024, 2, 29)],
            "m": [datetime(2026, 1, 31, 10, tzinfo=UTC), None, None],
            "j": [{"x": 1}, {"x": 2}, None],
            "f": [0.5, float("nan"), 2.0],
        }
    ).write_parquet(path)
    source = open_source(path, on_bad_row="stop")
    rows = await read(source, 2)
    assert types(source) == ["number", "text", "date", "datetime", "json", "number"]
    assert values(rows) == [
        [1, "", "2026-01-31", "2026-01-31T10:00:00+00:00", {"x": 1}, 0.5],
        [None, "007", None, None, {"x": 2}, None],
        [3, None, "2024-02-29", None, None, 2.0],
    ]
    assert [row.key for row in rows] == ["1", "2", "3"]


async def test_what_is_no_parquet_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidError) as caught:
        open_source(write(tmp_path / "t.parquet", "a,b\n1,2\n"), on_bad_row="stop")
    assert caught.value.code == "file_unreadable"


async def test_a_workbook_gives_its_first_sheet_or_the_one_named(tmp_path: Path) -> None:
    path = workbook(
        tmp_path / "t.xlsx",
        First=[["n", "t", "d"], [1, "=1+1x", date(2026, 1, 31)], [2.5, None, None]],
        Other=[["z"], ["007"]],
    )
    source = open_source(path, on_bad_row="stop")
    rows = await read(source)
    assert names(source) == ["n", "t", "d"]
    assert types(source)[::2] == ["number", "date"]
    assert rows[0].values[0] == 1
    assert rows[0].values[2] == "2026-01-31"
    assert values(rows)[1] == [2.5, MISSING, MISSING]
    assert [(row.key, row.line) for row in rows] == [("1", 2), ("2", 3)]
    other = open_source(path, on_bad_row="stop", sheet="Other")
    assert values(await read(other)) == [["007"]]


async def test_a_sheet_that_is_not_there_is_told_with_those_that_are(tmp_path: Path) -> None:
    path = workbook(tmp_path / "t.xlsx", First=[["a"], [1]])
    with pytest.raises(InvalidError) as caught:
        open_source(path, on_bad_row="stop", sheet="Second")
    assert "First" in str(caught.value)


async def test_a_workbook_that_unpacks_to_too_much_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = workbook(tmp_path / "t.xlsx", First=[["a"], [1]])
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/media/bomb.bin", b"\0" * 1_000_000)
    monkeypatch.setattr(limits, "XLSX_UNPACKED_BYTES_MAX", 100_000)
    with pytest.raises(InvalidError) as caught:
        open_source(path, on_bad_row="stop")
    assert caught.value.code == "file_too_large"


async def test_a_folder_is_one_row_a_file_in_order_without_what_is_hidden_or_outside(
    tmp_path: Path,
) -> None:
    outside = write(tmp_path / "secret.txt", "no")
    folder = tmp_path / "docs"
    (folder / "sub").mkdir(parents=True)
    (folder / ".git").mkdir()
    write(folder / "b.md", "# b")
    write(folder / "sub" / "a.txt", "a")
    write(folder / ".hidden", "h")
    write(folder / ".git" / "config", "c")
    (folder / "picture.dat").write_bytes(PNG)
    (folder / "leaves.txt").symlink_to(outside)
    sink = Sink()
    source = open_source(folder, on_bad_row="stop", files=sink)
    rows = await read(source)
    assert names(source) == ["file", "name", "path", "mime", "size_bytes"]
    assert types(source) == ["document", "text", "text", "text", "number"]
    assert [row.key for row in rows] == ["b.md", "picture.dat", "sub/a.txt"]
    assert sink.names == ["b.md", "picture.dat", "a.txt"]
    assert [row.values[3] for row in rows] == ["text/markdown", "image/png", "text/plain"]
    assert rows[2].values[0] == {
        "name": "a.txt",
        "mime": "text/plain",
        "size_bytes": 1,
        "sha256": hashlib.sha256(b"a").hexdigest(),
    }
    assert source.size_bytes == 4 + len(PNG)


async def test_a_folder_of_pictures_only_is_a_column_of_images(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(PNG)
    (tmp_path / "b.jpg").write_bytes(b"\xff\xd8\xff\xe0\x00\x10JFIF\x00\x01")
    source = open_source(tmp_path, on_bad_row="stop", files=Sink())
    assert types(source)[0] == "image"


@pytest.mark.parametrize("suffix", [".txt", ".urls"])
async def test_a_list_of_addresses_is_keyed_by_address(tmp_path: Path, suffix: str) -> None:
    text = "# ours\nhttps://a.example/\n\nhttps://b.example/x\nno address\nhttps://a.example/\n"
    source = open_source(write(tmp_path / f"list{suffix}", text), on_bad_row="skip")
    rows = await read(source)
    assert names(source) == ["url"]
    assert types(source) == ["url"]
    assert [row.key for row in rows] == [
        "https://a.example/",
        "https://b.example/x",
        "https://a.example/ #2",
    ]
    assert [row.line for row in rows] == [2, 4, 6]
    assert rows[2].values == ("https://a.example/",)
    assert [bad.line for bad in source.bad_rows] == [5]


async def test_an_unknown_ending_is_told_with_those_that_are_known(tmp_path: Path) -> None:
    with pytest.raises(InvalidError) as caught:
        open_source(write(tmp_path / "t.sav", "x"), on_bad_row="stop")
    assert all(suffix in str(caught.value) for suffix in SUPPORTED_SUFFIXES)


@pytest.mark.parametrize("name", ["no.csv", "no.jsonl", "no.parquet", "no.xlsx", "no.txt", "no"])
async def test_a_missing_path_is_told(tmp_path: Path, name: str) -> None:
    with pytest.raises(NotFoundError):
        open_source(tmp_path / name, on_bad_row="stop", files=Sink())


async def test_endings_are_known_in_capitals_too(tmp_path: Path) -> None:
    path = write(tmp_path / "T.JSONL", json.dumps({"a": 1}))
    assert values(await read(open_source(path, on_bad_row="stop"))) == [[1]]


def test_a_pipe_is_refused_rather_than_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    with pytest.raises(InvalidError) as caught:
        open_source(pipe, on_bad_row="stop")
    assert caught.value.code == "file_unreadable"


def test_a_sheet_of_what_has_no_sheets_is_refused(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text("a\n1\n")
    with pytest.raises(InvalidError) as caught:
        open_source(table, on_bad_row="stop", sheet="Second")
    assert caught.value.code == "sheet_unwanted"


def test_doubled_braces_in_a_header_become_single_ones_and_it_is_told(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text("a{{b}},a{b}\n1,2\n")
    source = open_source(table, on_bad_row="stop")
    assert [column.name for column in source.columns] == ["a{b}", "a{b}_2"]
    assert "Column 1 ('a{{b}}') is called 'a{b}' here." in source.notes
