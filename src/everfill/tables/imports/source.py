"""What every reader gives: columns, notes, rows in batches, and the rows it refused."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, NamedTuple, Protocol, TypeAlias

from everfill.kernel import limits
from everfill.kernel.errors import InvalidError
from everfill.tables.types import ColumnType
from everfill.tables.values import JsonValue, Missing

__all__ = [
    "BadRow",
    "BadRows",
    "FileSink",
    "OnBadRow",
    "Source",
    "SourceColumn",
    "SourceRow",
    "SyncSource",
]

OnBadRow: TypeAlias = Literal["stop", "skip"]
"""What to do at a row that cannot be read: end the import, or report the row and go on."""

_NAMED_MAX: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceColumn:
    """A column as the source has it: a distinct name, and the type that all its values have."""

    name: str
    type: ColumnType


class SourceRow(NamedTuple):
    """One row; a tuple, because millions of them are made.

    Attributes:
        key: The row's identity inside its source, the same at every reading.
        values: One for each column; MISSING where the source has nothing.
        line: Where the row starts: a physical line, or its number among the rows.
    """

    key: str
    values: Sequence[JsonValue | Missing]
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRow:
    """A row that was not imported.

    Attributes:
        line: Where it starts.
        reason: Why, for people.
        expected: How many fields it should have, where that is the reason.
        got: How many it has.
    """

    line: int
    reason: str
    expected: int | None = None
    got: int | None = None


class FileSink(Protocol):
    """Where the bytes of a file go."""

    async def put_file(self, path: Path) -> str:
        """Store a file's bytes and return their sha256 (hexadecimal)."""
        ...


class BadRows:
    """The rows a reading refused: the first of them one by one, and how many there are."""

    def __init__(self) -> None:
        self.rows: list[BadRow] = []
        self.count = 0

    def add(self, row: BadRow) -> None:
        """Count a row, and keep it while there is room."""
        self.count += 1
        if len(self.rows) < limits.BAD_ROWS_KEPT_MAX:
            self.rows.append(row)

    def clear(self) -> None:
        """Forget all of them: the source is read again from its start."""
        self.rows.clear()
        self.count = 0

    def stop(self) -> InvalidError:
        """The error that ends an import because of these rows."""
        first = self.rows[0]
        lines = ", ".join(str(row.line) for row in self.rows[:_NAMED_MAX])
        more = f" and {self.count - _NAMED_MAX} more" if self.count > _NAMED_MAX else ""
        where = f"line {lines}" if self.count == 1 else f"lines {lines}{more}"
        message = f"{self.count} bad row(s), at {where}. Line {first.line}: {first.reason}."
        hint = "Mend the file, or let the import skip bad rows: it then reports each."
        return InvalidError("rows_invalid", message, hint=hint)


class Source(ABC):
    """An opened source, not yet read.

    Attributes:
        columns: In the order of the source, with distinct names.
        notes: What was detected, renamed or decided, one sentence each, for the person who imports.
            A reading may add to them.
        size_bytes: Of the file, or of all files of the folder.
        row_count: How many rows it holds, where that is known before the reading.
    """

    def __init__(self, *, size_bytes: int, on_bad_row: OnBadRow) -> None:
        self.columns: tuple[SourceColumn, ...] = ()
        self.notes: list[str] = []
        self.size_bytes = size_bytes
        self.row_count: int | None = None
        self._on_bad_row: OnBadRow = on_bad_row
        self._bad = BadRows()

    @property
    def bad_rows(self) -> list[BadRow]:
        """The first rows that the present reading refused, at most `limits.BAD_ROWS_KEPT_MAX`."""
        return self._bad.rows

    @property
    def bad_row_count(self) -> int:
        """How many rows the present reading refused so far."""
        return self._bad.count

    @abstractmethod
    def batches(self, rows_max: int) -> AsyncIterator[list[SourceRow]]:
        """Read all rows from the start, at most `rows_max` at a time.

        Raises:
            InvalidError: `rows_invalid` at a bad row, unless bad rows are skipped; or the source
                cannot be read to its end.
        """
        ...

    def _refuse(self, row: BadRow) -> None:
        """Report a bad row, and end the reading unless bad rows are skipped."""
        self._bad.add(row)
        if self._on_bad_row == "stop":
            raise self._bad.stop()

    def _note(self, sentence: str) -> None:
        if sentence not in self.notes:
            self.notes.append(sentence)


class SyncSource(Source):
    """A source that is read by plain blocking calls; `batches` moves them off the event loop."""

    @abstractmethod
    def read(self, rows_max: int) -> Iterator[list[SourceRow]]:
        """What `batches` gives, without an event loop."""
        ...

    async def batches(self, rows_max: int) -> AsyncIterator[list[SourceRow]]:
        """Read all rows from the start, at most `rows_max` at a time."""
        batches = self.read(rows_max)
        while batch := await asyncio.to_thread(next, batches, None):
            yield batch
