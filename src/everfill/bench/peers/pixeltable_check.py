"""Whether a table that Pixeltable filled holds every word once, and beside it what it must."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path


def words_of(source: Path) -> list[str]:
    """The words of a file."""
    with source.open(encoding="utf-8", newline="") as file:
        return [row["word"] for row in csv.DictReader(file)]


def check(
    found: Sequence[tuple[str, ...]], names: Sequence[str], words: Sequence[str], answer: str
) -> dict[str, int]:
    """How many rows of these words are missing, wrong or there twice."""
    wanted = set(words)
    rows = [row for row in found if row[0] in wanted]
    wrong = sum(not is_right(row, names, answer) for row in rows)
    present = {row[0] for row in rows}
    missing = len(wanted) - len(present)
    return {"rows_missing": missing, "rows_wrong": wrong, "rows_twice": len(rows) - len(present)}


def is_right(row: tuple[str, ...], names: Sequence[str], answer: str) -> bool:
    """Whether a row holds what its word gives; without a known answer, whether it has one."""
    word = row[0]
    right = {"word": word, "one": f"1 {word}", "two": f"2 1 {word}"}
    right["answer"] = answer.replace("{input}", word) if answer else row[-1]
    return all(row) and row == tuple(right[name] for name in names)
