"""Which reader reads what: a folder by being one, a file by its suffix."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from everfill.kernel.errors import InvalidError, NotFoundError
from everfill.tables.imports.csv_source import CsvSource
from everfill.tables.imports.folder_source import FolderSource
from everfill.tables.imports.jsonl_source import JsonlSource
from everfill.tables.imports.parquet_source import ParquetSource
from everfill.tables.imports.source import FileSink, OnBadRow, Source
from everfill.tables.imports.url_source import UrlSource
from everfill.tables.imports.xlsx_source import XlsxSource

__all__ = ["SUPPORTED_SUFFIXES", "file_missing", "open_source"]

_READERS: Final = {
    ".csv": CsvSource,
    ".tsv": CsvSource,
    ".tab": CsvSource,
    ".jsonl": JsonlSource,
    ".ndjson": JsonlSource,
    ".parquet": ParquetSource,
    ".xlsx": XlsxSource,
    ".txt": UrlSource,
    ".urls": UrlSource,
}

SUPPORTED_SUFFIXES: Final = tuple(_READERS)
"""The endings of files that can be imported."""


def open_source(
    path: Path, *, on_bad_row: OnBadRow, files: FileSink | None = None, sheet: str | None = None
) -> Source:
    """Open a file, a folder of files or a list of addresses, and say what columns it has.

    Args:
        path: `.csv`, `.tsv`, `.jsonl`, `.parquet`, `.xlsx`, a `.txt` of web addresses, or a folder.
        on_bad_row: Whether a row that cannot be read ends the import or is reported and passed
            over. Most sources find bad rows here already, before anything is imported.
        files: Where the bytes of files go; only a folder needs it.
        sheet: Which sheet of a workbook; the first if None.

    Raises:
        NotFoundError: `file_missing`.
        InvalidError: `format_unknown`, `file_empty`, `file_unreadable`, `rows_invalid` and others
            that say what is wrong with the file, and where.
    """
    try:
        return _open(path, on_bad_row=on_bad_row, files=files, sheet=sheet)
    except FileNotFoundError as error:
        raise file_missing(path) from error
    except OSError as error:
        message = f"{path} cannot be read: {error.strerror or error}."
        raise InvalidError("file_unreadable", message) from error


def file_missing(path: Path) -> NotFoundError:
    """What is said where nothing is at a path."""
    hint = f"It was looked for as {path.absolute()}."
    return NotFoundError("file_missing", f"There is no file {path}.", hint=hint)


def _open(path: Path, *, on_bad_row: OnBadRow, files: FileSink | None, sheet: str | None) -> Source:
    if path.is_dir():
        if files is None:
            message = f"{path} is a folder, and there is nowhere to keep its files."
            raise InvalidError("files_unwanted", message, hint="Import a table instead.")
        return FolderSource(path, on_bad_row=on_bad_row, files=files)
    reader = _READERS.get(path.suffix.lower())
    if not path.exists():
        raise FileNotFoundError(path)
    if not path.is_file():  # reading a pipe or a device might never end
        raise InvalidError("file_unreadable", f"{path} is no file.", hint="Import a file.")
    if reader is None:
        message = f"{path.name} is in no format that can be imported."
        hint = f"Use a folder of files, or one of {', '.join(SUPPORTED_SUFFIXES)}."
        raise InvalidError("format_unknown", message, hint=hint)
    if sheet is not None and reader is not XlsxSource:
        message = f"{path.name} is no Excel file: it has no sheet {sheet!r}."
        raise InvalidError("sheet_unwanted", message, hint="Leave --sheet out.")
    if reader is XlsxSource:
        return XlsxSource(path, on_bad_row=on_bad_row, sheet=sheet)
    return reader(path, on_bad_row=on_bad_row)
