"""Which writer writes what, by the file's suffix."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from everfill.kernel.errors import InvalidError
from everfill.tables.exports.csv_sink import CsvSink
from everfill.tables.exports.jsonl_sink import JsonlSink
from everfill.tables.exports.parquet_sink import ParquetSink
from everfill.tables.exports.sink import Sink, SinkColumn
from everfill.tables.exports.xlsx_sink import XlsxSink

__all__ = ["SUPPORTED_SUFFIXES", "check_target", "open_sink"]

_WRITERS: Final[dict[str, type[Sink]]] = {
    ".csv": CsvSink,
    ".tsv": CsvSink,
    ".tab": CsvSink,
    ".jsonl": JsonlSink,
    ".ndjson": JsonlSink,
    ".parquet": ParquetSink,
    ".xlsx": XlsxSink,
}

SUPPORTED_SUFFIXES: Final = tuple(_WRITERS)
"""The endings of files that can be exported."""


def open_sink(path: Path, columns: Sequence[SinkColumn], *, with_status: bool = False) -> Sink:
    """A writer for a file; enter it, write rows, leave it.

    Args:
        path: Its suffix is the format.
        columns: At least one, with distinct names.
        with_status: Whether `<name>.status` and `<name>.error` follow each computed column.

    Raises:
        InvalidError: `format_unknown` or `columns_missing`.
    """
    writer = _writer(path)
    if not columns:
        raise InvalidError("columns_missing", "There is no column to export.")
    return writer(path, columns, with_status=with_status)


def check_target(path: Path, source: Path) -> None:
    """Refuse, before any work, a file that cannot take a table made from a source.

    Raises:
        InvalidError: `format_unknown`, `output_unwritable`, or `output_is_input`: a table that
            replaced its own source, or lay in its folder, would be imported by the next run.
    """
    _writer(path)
    target, origin = path.resolve(), source.resolve()
    if target == origin or (origin.is_dir() and origin in target.parents):
        message = f"{path} is what is read, or lies in it: the next run would import it."
        raise InvalidError("output_is_input", message, hint="Write elsewhere.")
    if target.is_dir():
        raise InvalidError("output_unwritable", f"{target} is a folder.", hint="Name a file in it.")
    nearest = next(folder for folder in target.parents if folder.exists())
    if not (nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)):
        message = f"{target} cannot be written: {nearest} takes no new file."
        raise InvalidError("output_unwritable", message, hint="Write elsewhere.")


def _writer(path: Path) -> type[Sink]:
    writer = _WRITERS.get(path.suffix.lower())
    if writer is None:
        message = f"{path.name} is in no format that can be exported."
        raise InvalidError("format_unknown", message, hint=f"Use {', '.join(SUPPORTED_SUFFIXES)}.")
    return writer
