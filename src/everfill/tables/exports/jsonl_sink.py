"""JSON lines: one object a row; a missing cell has no key, null is null, every text survives."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec

from everfill.tables.exports.sink import Sink, SinkColumn
from everfill.tables.values import MISSING, JsonValue, Missing

__all__ = ["JsonlSink", "json_line"]


class JsonlSink(Sink):
    """Writes one JSON object a line."""

    def __init__(self, path: Path, columns: Sequence[SinkColumn], *, with_status: bool) -> None:
        super().__init__(path, columns, with_status=with_status)
        self._names = [column.name for column in self._layout]
        self._file: BinaryIO | None = None

    def _open(self, part: Path) -> None:
        self._file = part.open("xb")

    def _write(self, rows: Sequence[Sequence[JsonValue | Missing]]) -> None:
        assert self._file is not None, "the sink is entered"
        names = self._names
        self._file.write(
            b"".join(
                json_line(
                    {
                        name: value
                        for name, value in zip(names, row, strict=True)
                        if value is not MISSING
                    }
                )
                for row in rows
            )
        )

    def _finish(self) -> None:
        if self._file is not None:
            self._file.close()

    def _abandon(self) -> None:
        self._finish()


def json_line(value: object) -> bytes:
    """JSON and a line end; halves of surrogate pairs are written as escapes."""
    try:
        return msgspec.json.encode(value) + b"\n"
    except (UnicodeEncodeError, OverflowError):
        return json.dumps(value, separators=(",", ":")).encode() + b"\n"
