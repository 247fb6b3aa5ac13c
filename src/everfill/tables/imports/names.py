"""Column names from headers: each distinct, none empty, and every renaming told."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from everfill.kernel import limits
from everfill.kernel.errors import InvalidError

__all__ = ["distinct_names"]

_DOUBLED_BRACES: Final = re.compile(r"([{}])\1+")


def distinct_names(headers: Sequence[str]) -> tuple[list[str], list[str]]:
    """The names of the columns, and notes on those that differ from their headers.

    White space is trimmed and joined, characters that do not print are dropped, doubled braces,
    which stand for references, become single ones, an empty header becomes `column_3`, and one
    that was seen before becomes `name_2`.

    Raises:
        InvalidError: `columns_too_many`.
    """
    if len(headers) > limits.COLUMNS_MAX:
        message = f"The header has {len(headers)} columns; the most is {limits.COLUMNS_MAX}."
        raise InvalidError("columns_too_many", message, hint="Split the file, or use fewer.")
    taken = {_clean(header) for header in headers}
    names: list[str] = []
    notes: list[str] = []
    used: set[str] = set()
    for position, header in enumerate(headers, start=1):
        clean = _clean(header)
        name = clean if clean and clean not in used else _free_name(clean, position, taken | used)
        used.add(name)
        names.append(name)
        if name != header.strip():
            shown = f"{header[:40]!r}" if header else "without a name"
            notes.append(f"Column {position} ({shown}) is called {name!r} here.")
    return names, notes


def _clean(header: str) -> str:
    joined = " ".join(header.split())
    printable = "".join(char for char in joined if char.isprintable())
    return _DOUBLED_BRACES.sub(r"\1", printable)[: limits.NAME_CHARS_MAX].strip()


def _free_name(clean: str, position: int, taken: set[str]) -> str:
    stem = clean or "column"
    number = 2 if clean else position
    while (name := f"{stem[: limits.NAME_CHARS_MAX - 8]}_{number}") in taken:
        number += 1
    return name
