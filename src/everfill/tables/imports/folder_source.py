"""A folder of files: one row a file, its bytes handed to the caller's store."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from everfill.kernel.errors import InvalidError
from everfill.tables.imports.mime import file_mime
from everfill.tables.imports.source import (
    BadRow,
    BadRows,
    FileSink,
    OnBadRow,
    Source,
    SourceColumn,
    SourceRow,
)
from everfill.tables.types import TEXT, ColumnType, TypeName
from everfill.tables.values import JsonValue

__all__ = ["FolderSource"]

_MEDIA: Final = {"image": TypeName.IMAGE, "audio": TypeName.AUDIO, "video": TypeName.VIDEO}


@dataclass(frozen=True, slots=True)
class _Found:
    path: Path
    relative: str
    mime: str
    size_bytes: int


class FolderSource(Source):
    """Every file below a folder, in the order of their paths.

    Hidden files and folders are passed over; a link is followed only to a file inside the folder.
    The column `file` holds images, audio or video where all files are such, else documents. A
    row's key is the file's path inside the folder.

    Args:
        path: The folder.
        on_bad_row: Whether a file that cannot be read ends the import.
        files: Takes the bytes.

    Raises:
        InvalidError: `folder_empty`, or (unless bad rows are skipped) files that cannot be read.
    """

    def __init__(self, path: Path, *, on_bad_row: OnBadRow, files: FileSink) -> None:
        super().__init__(size_bytes=0, on_bad_row=on_bad_row)
        self._root = path.resolve()
        self._files = files
        kinds = self._survey()
        file_type = _MEDIA.get(kinds.pop(), TypeName.DOCUMENT) if len(kinds) == 1 else None
        self.columns = (
            SourceColumn(name="file", type=ColumnType(name=file_type or TypeName.DOCUMENT)),
            SourceColumn(name="name", type=TEXT),
            SourceColumn(name="path", type=TEXT),
            SourceColumn(name="mime", type=TEXT),
            SourceColumn(name="size_bytes", type=ColumnType(name=TypeName.NUMBER)),
        )

    async def batches(self, rows_max: int) -> AsyncIterator[list[SourceRow]]:
        """Store the files' bytes and give their rows, at most `rows_max` at a time."""
        self._bad.clear()
        batch: list[SourceRow] = []
        found = self._found()
        number = 0
        while (item := await asyncio.to_thread(next, found, None)) is not None:
            number += 1
            row = await self._row(item, number)
            if isinstance(row, BadRow):
                self._refuse(row)
                continue
            batch.append(row)
            if len(batch) == rows_max:
                yield batch
                batch = []
        if batch:
            yield batch

    async def _row(self, item: _Found | BadRow, number: int) -> SourceRow | BadRow:
        if isinstance(item, BadRow):
            return item
        try:
            sha256 = await self._files.put_file(item.path)
        except OSError as error:
            return _unreadable(item.relative, number, error)
        name = item.path.name
        file: dict[str, JsonValue] = {
            "name": name,
            "mime": item.mime,
            "size_bytes": item.size_bytes,
            "sha256": sha256,
        }
        values: list[JsonValue] = [file, name, item.relative, item.mime, item.size_bytes]
        return SourceRow(item.relative, values, number)

    def _survey(self) -> set[str]:
        """Count the files, and tell which kinds of media they are."""
        kinds: set[str] = set()
        bad = BadRows()
        rows = 0
        for item in self._found():
            if isinstance(item, BadRow):
                bad.add(item)
                continue
            rows += 1
            self.size_bytes += item.size_bytes
            kinds.add(item.mime.partition("/")[0])
        if bad.count and self._on_bad_row == "stop":
            raise bad.stop()
        if not rows:
            message = f"The folder {self._root} holds no file that can be imported."
            raise InvalidError("folder_empty", message, hint="Hidden files are passed over.")
        self.row_count = rows
        return kinds

    def _found(self) -> Iterator[_Found | BadRow]:
        for number, path in enumerate(self._walk(self._root), start=1):
            relative = path.relative_to(self._root).as_posix()
            try:
                yield _Found(path, relative, file_mime(path), path.stat().st_size)
            except OSError as error:
                yield _unreadable(relative, number, error)

    def _walk(self, folder: Path) -> Iterator[Path]:
        try:
            with os.scandir(folder) as entries:
                listed = sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            self._note(f"The folder {folder} cannot be read ({error.strerror}).")
            return
        for entry in listed:
            path = Path(entry.path)
            if entry.name.startswith("."):
                continue
            if entry.is_dir(follow_symlinks=False):
                yield from self._walk(path)
            elif entry.is_file() and self._is_inside(path, linked=entry.is_symlink()):
                yield path
            elif entry.is_symlink():
                self._note("Links to folders, and to files outside of this one, are passed over.")

    def _is_inside(self, path: Path, *, linked: bool) -> bool:
        return not linked or path.resolve().is_relative_to(self._root)


def _unreadable(relative: str, number: int, error: OSError) -> BadRow:
    return BadRow(line=number, reason=f"{relative} cannot be read ({error.strerror or error})")
