# ruff: noqa: RUF001 - other scripts' letters and marks are meant
"""Texts cut into sentences and words, whatever their script.

Rules, not models: an end mark with what closes it (quotes, brackets) ends a sentence where white
space or the text's end follows; the full-width marks of Chinese and Japanese end one anywhere; a
blank line always does. Initials and common abbreviations do not.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["split_sentences", "split_words"]

_CLOSERS: Final = "\"'”’»)\\]」』）】"
_END: Final = re.compile(
    rf"(?<=[.!?…؟।։])[{_CLOSERS}]*(?=\s)|[。！？｡]+[{_CLOSERS}]*|\n\s*\n|\f|(?<=\n)(?=\s*[-*•])"
)
_ABBREVIATION: Final = re.compile(
    r"(?:\b[^\W\d_]|\b(?:Mr|Mrs|Ms|Dr|Prof|Sr|Jr|St|vs|etc|bzw|ca|Nr|No|Art|Abs|Fig|approx|Inc|Ltd)"
    r"|^\s*\d{1,3})\.$",
    re.IGNORECASE,
)
_WORD: Final = re.compile(r"[^\W\d_]+(?:['’\-][^\W\d_]+)*|\d+(?:[.,]\d+)*")


def split_sentences(text: str) -> list[str]:
    """The sentences in order, without surrounding white space; none is empty."""
    sentences: list[str] = []
    start = 0
    for match in _END.finditer(text):
        piece = text[start : match.end()]
        if _ABBREVIATION.search(piece.rstrip()):
            continue
        sentences.append(piece)
        start = match.end()
    sentences.append(text[start:])
    return [" ".join(sentence.split()) for sentence in sentences if sentence.strip()]


def split_words(text: str) -> list[str]:
    """The words and numbers in order, as written."""
    return _WORD.findall(text)
