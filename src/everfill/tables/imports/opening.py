"""Which reader reads what."""

from __future__ import annotations

from pathlib import Path

from everfill.kernel.errors import InvalidError, NotFoundError
from everfill.tables.imports.csv_source import CsvSource
from everfill.tables.imports.source import FileSink, OnBadRow, Source

__all__ = ["SUPPORTED_SUFFIXES", "open_source"]

SUPPORTED_SUFFIXES = (".csv", ".tsv", ".tab")


def open_source(path: Path, *, on_bad_row: OnBadRow, files: FileSink | None = None) -> Source:
    """Open a source."""
    if not path.exists():
        raise NotFoundError("file_missing", f"There is no file {path}.")
    if path.suffix.lower() in SUPPORTED_SUFFIXES:
        return CsvSource(path, on_bad_row=on_bad_row)
    raise InvalidError("format_unknown", f"{path.name} is in no format that can be imported.")
