from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from everfill.kernel.errors import InvalidError
from everfill.tables.imports import SourceRow, open_source

_PNG = b"\x89PNG\r\n\x1a\n" + b"\x00" * 30


class _Files:
    def __init__(self) -> None:
        self.taken: list[str] = []

    async def put_file(self, path: Path) -> str:
        self.taken.append(path.name)
        return hashlib.sha256(path.read_bytes()).hexdigest()  # noqa: ASYNC240 - a few bytes


def _make(root: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return root


async def _rows(folder: Path) -> list[SourceRow]:
    source = open_source(folder, on_bad_row="stop", files=_Files())
    return [row async for batch in source.batches(2) for row in batch]


async def test_a_folder_gives_a_row_a_file_with_its_bytes_stored(tmp_path: Path) -> None:
    _make(tmp_path, {"b/z.png": _PNG, "a.txt": b"hi", "c.md": b"# x"})
    files = _Files()
    source = open_source(tmp_path, on_bad_row="stop", files=files)
    names = [(column.name, str(column.type.name)) for column in source.columns]
    assert names == [
        ("file", "document"), ("name", "text"), ("path", "text"), ("mime", "text"),
        ("size_bytes", "number"),
    ]  # fmt: skip
    rows = [row async for batch in source.batches(2) for row in batch]
    assert [row.key for row in rows] == ["a.txt", "b/z.png", "c.md"]
    sha256 = hashlib.sha256(b"hi").hexdigest()
    file = {"name": "a.txt", "mime": "text/plain", "size_bytes": 2, "sha256": sha256}
    assert rows[0].values == [file, "a.txt", "a.txt", "text/plain", 2]
    assert rows[1].values[1:] == ["z.png", "b/z.png", "image/png", 38]
    assert files.taken == ["a.txt", "z.png", "c.md"]
    assert (source.row_count, source.size_bytes) == (3, 43)


async def test_a_folder_of_images_is_a_column_of_images(tmp_path: Path) -> None:
    _make(tmp_path, {"a.png": _PNG, "b.PNG": _PNG, "no-suffix": _PNG})
    source = open_source(tmp_path, on_bad_row="stop", files=_Files())
    assert source.columns[0].type.name == "image"


async def test_hidden_files_are_passed_over(tmp_path: Path) -> None:
    _make(tmp_path, {".secret": b"x", ".git/config": b"x", "a.txt": b"x"})
    assert [row.key for row in await _rows(tmp_path)] == ["a.txt"]


async def test_links_never_lead_out_of_the_folder(tmp_path: Path) -> None:
    outside = _make(tmp_path / "outside", {"secret.txt": b"x"})
    inside = _make(tmp_path / "inside", {"a.txt": b"x"})
    (inside / "out.txt").symlink_to(outside / "secret.txt")
    (inside / "dir").symlink_to(outside)
    (inside / "loop").symlink_to(inside)
    (inside / "same.txt").symlink_to("a.txt")
    (inside / "broken.txt").symlink_to("nowhere")
    assert [row.key for row in await _rows(inside)] == ["a.txt", "same.txt"]


async def test_a_pdf_is_a_pdf_whatever_it_is_called(tmp_path: Path) -> None:
    _make(tmp_path, {"a.jpg": b"%PDF-1.7\n", "b.docx": b"PK\x03\x04", "c.pdf": b""})
    mimes = [row.values[3] for row in await _rows(tmp_path)]
    assert mimes[0] == "application/pdf"
    assert str(mimes[1]).endswith("wordprocessingml.document")
    assert mimes[2] == "application/pdf"


def test_a_folder_without_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidError) as caught:
        open_source(tmp_path, on_bad_row="stop", files=_Files())
    assert caught.value.code == "folder_empty"


async def test_a_file_that_vanishes_is_a_bad_row(tmp_path: Path) -> None:
    _make(tmp_path, {"a.txt": b"x", "b.txt": b"y"})

    class Vanishing(_Files):
        async def put_file(self, path: Path) -> str:
            if path.name == "a.txt":
                raise FileNotFoundError(2, "gone", str(path))
            return await super().put_file(path)

    source = open_source(tmp_path, on_bad_row="skip", files=Vanishing())
    assert [row.key async for batch in source.batches(9) for row in batch] == ["b.txt"]
    assert "a.txt cannot be read (gone)" in source.bad_rows[0].reason
