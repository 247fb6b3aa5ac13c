"""What every writer does: lay out the columns, and put the finished file in place at once."""

from __future__ import annotations

import os
import secrets
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from everfill.kernel.errors import InvalidError
from everfill.tables.types import FILE_TYPES, TEXT, ColumnType, TypeName
from everfill.tables.values import MISSING, JsonValue, Missing, to_text

__all__ = ["Sink", "SinkColumn", "SinkRow", "cell_text", "storable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkColumn:
    """A column to write.

    Attributes:
        name: Its header.
        type: What its values are.
        computed: Whether its cells have a status.
    """

    name: str
    type: ColumnType
    computed: bool = False


class SinkRow(NamedTuple):
    """One row; a tuple, because millions of them are made.

    Attributes:
        values: One for each column.
        statuses: One for each column (None for input columns), where statuses are written.
        errors: The same, with what went wrong.
    """

    values: Sequence[JsonValue | Missing]
    statuses: Sequence[str | None] = ()
    errors: Sequence[str | None] = ()


class Sink(ABC):
    """A file in the making; a context manager.

    The rows go to a hidden file beside the target, which takes the target's place when the block
    ends well, and is removed when it does not: nobody ever sees half a file. With statuses, each
    computed column is followed by `<name>.status` and `<name>.error`.

    Args:
        path: Where the file is to be; its folder is made if need be.
        columns: In the order of the values of a row.
        with_status: Whether statuses and errors are written too.

    Attributes:
        notes: What the format could not say, one sentence each, for the person who exports.
    """

    def __init__(self, path: Path, columns: Sequence[SinkColumn], *, with_status: bool) -> None:
        self._target = path.resolve()
        self._part = self._target.parent / f".{path.name[:80]}.{secrets.token_hex(4)}.part"
        self._columns = columns
        self._with_status = with_status
        self._layout = _layout(columns, with_status=with_status)
        self.notes: list[str] = []

    def __enter__(self) -> Self:
        if self._target.is_dir():
            raise InvalidError("output_unwritable", f"{self._target} is a folder.")
        try:
            self._target.parent.mkdir(parents=True, exist_ok=True)
            self._open(self._part)
        except OSError as error:
            self._discard()
            raise self._unwritable(error) from error
        except BaseException:
            self._discard()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self._discard()
            return
        try:
            self._finish()
            self._put_in_place()
        except OSError as fault:
            self._discard()
            raise self._unwritable(fault) from fault
        except BaseException:
            self._discard()
            raise

    def write(self, rows: Sequence[SinkRow]) -> None:
        """Append rows.

        Raises:
            InvalidError: `output_unwritable` (a full disk, say), or a value that the format cannot
                hold; the message names the cell.
        """
        try:
            self._write([self._flat(row) for row in rows] if self._with_status else _values(rows))
        except OSError as error:
            raise self._unwritable(error) from error

    @abstractmethod
    def _open(self, part: Path) -> None:
        """Begin the file."""

    @abstractmethod
    def _write(self, rows: Sequence[Sequence[JsonValue | Missing]]) -> None:
        """Append rows that have one value for each column of the layout."""

    @abstractmethod
    def _finish(self) -> None:
        """Complete and close the file."""

    @abstractmethod
    def _abandon(self) -> None:
        """Close the file, which will not be used, however far it came; may raise OSError."""

    def _note(self, sentence: str) -> None:
        if sentence not in self.notes:
            self.notes.append(sentence)

    def _storable(self, text: str) -> str:
        """The text, with U+FFFD for halves of surrogate pairs, which UTF-8 cannot hold."""
        clean = storable(text)
        if clean is not text:
            self._note("Halves of surrogate pairs are written as U+FFFD; JSON lines keep them.")
        return clean

    def _flat(self, row: SinkRow) -> list[JsonValue | Missing]:
        flat: list[JsonValue | Missing] = []
        for index, column in enumerate(self._columns):
            flat.append(row.values[index])
            if column.computed:
                flat.append(_told(row.statuses, index))
                flat.append(_told(row.errors, index))
        return flat

    def _discard(self) -> None:
        """Leave nothing behind; the fault that led here is the one to tell."""
        with suppress(OSError):
            self._abandon()
        with suppress(OSError):
            self._part.unlink(missing_ok=True)

    def _put_in_place(self) -> None:
        with self._part.open("rb+") as file:
            os.fsync(file.fileno())
        self._part.replace(self._target)
        _sync_folder(self._target.parent)

    def _unwritable(self, error: OSError) -> InvalidError:
        message = f"{self._target} cannot be written: {error.strerror or error}."
        return InvalidError(
            "output_unwritable", message, hint="Free some space, or write elsewhere."
        )


def cell_text(value: JsonValue, name: TypeName) -> str:
    """How a value reads in a cell of a sheet: a file by its name, the rest as in a template."""
    if name in FILE_TYPES and isinstance(value, dict) and isinstance(value.get("name"), str):
        return str(value["name"])
    return to_text(value)


def storable(text: str) -> str:
    """The very same text if UTF-8 can hold it, else one with U+FFFD for what it cannot."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        # UTF-16 joins halves that happen to stand side by side, and replaces the others.
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _layout(columns: Sequence[SinkColumn], *, with_status: bool) -> list[SinkColumn]:
    taken = {column.name for column in columns}
    layout: list[SinkColumn] = []
    for column in columns:
        layout.append(column)
        if with_status and column.computed:
            layout += [
                SinkColumn(name=_free_name(f"{column.name}.{word}", taken), type=TEXT)
                for word in ("status", "error")
            ]
    return layout


def _free_name(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_2"
    taken.add(name)
    return name


def _values(rows: Sequence[SinkRow]) -> list[Sequence[JsonValue | Missing]]:
    return [row.values for row in rows]


def _told(words: Sequence[str | None], index: int) -> str | Missing:
    word = words[index] if words else None
    return MISSING if word is None else str(word)


def _sync_folder(folder: Path) -> None:
    """Make the renaming durable, where folders can be synced."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return  # not on this system
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
