"""The mark between the pages of an extracted document: the one place that knows how it looks.

A page (of a PDF), slide or sheet begins with a line `[page 3]`; a form feed stands before every
such line but the first. Columns, evidence and people can then say where a sentence stands.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

__all__ = ["mark_pages", "split_pages"]

_MARK: Final = re.compile(r"(?:\A|\f)\[page ([0-9]+)\]\n")


def mark_pages(texts: Iterable[str]) -> str:
    """One text of all pages, numbered from 1; form feeds inside a page become line ends."""
    pages = (text.replace("\f", "\n").strip() for text in texts)
    return "\n\f".join(f"[page {number}]\n{text}" for number, text in enumerate(pages, start=1))


def split_pages(text: str) -> list[tuple[int, str]]:
    """Number and text of each page; a text without marks is page 1."""
    marks = list(_MARK.finditer(text))
    if not marks:
        return [(1, text)]
    ends = [mark.start() for mark in marks[1:]] + [len(text)]
    return [
        (int(mark[1]), text[mark.end() : end].rstrip("\n"))
        for mark, end in zip(marks, ends, strict=True)
    ]
