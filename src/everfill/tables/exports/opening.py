"""Which writer writes what, by the file's suffix."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from everfill.kernel.errors import InvalidError
from everfill.tables.exports.csv_sink import CsvSink
from everfill.tables.exports.jsonl_sink import JsonlSink
from everfill.tables.exports.parquet_sink import ParquetSink
from everfill.tables.exports.sink import Sink, SinkColumn
from everfill.tables.exports.xlsx_sink import XlsxSink

__all__ = ["SUPPORTED_SUFFIXES", "open_sink"]

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
    writer = _WRITERS.get(path.suffix.lower())
    if writer is None:
        message = f"{path.name} is in no format that can be exported."
        raise InvalidError("format_unknown", message, hint=f"Use {', '.join(SUPPORTED_SUFFIXES)}.")
    if not columns:
        raise InvalidError("columns_missing", "There is no column to export.")
    return writer(path, columns, with_status=with_status)
