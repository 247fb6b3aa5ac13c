# ruff: noqa: RUF001 - other scripts' letters and marks are meant
"""Texts cut into sentences and words, whatever their script.

Rules, not models: an end mark with what closes it (quotes, brackets) ends a sentence where white
space or the text's end follows; the full-width marks of Chinese and Japanese end one anywhere; a
blank line always does. Initials, common abbreviations and ordinals (`1. April`) do not. Headings,
list items and table rows stand alone, without the marks that make them such; the marks between
pages are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from everfill.compute.pages import split_pages

__all__ = ["is_whole", "split_sentences", "split_words"]

_CLOSERS: Final = "\"'”’»)\\]」』）】"
_END: Final = re.compile(
    rf"(?<=[.!?…؟।։])[{_CLOSERS}]*(?=\s)|[。！？｡]+[{_CLOSERS}]*|\n\s*\n|\f|(?<=\n)(?=[^\S\n]*[-*•])"
)
_WHOLE: Final = re.compile(rf"[.!?…؟।։。！？｡][{_CLOSERS}]*$")
_ABBREVIATION: Final = re.compile(
    r"(?:\b[^\W\d_]|\b(?:Mr|Mrs|Ms|Dr|Prof|Sr|Jr|St|vs|etc|bzw|ca|Nr|No|Art|Abs|Fig|approx|Inc|Ltd)"
    r"|^\s*\d{1,3})\.$",
    re.IGNORECASE,
)
_NUMBER: Final = re.compile(r"\b\d{1,2}\.$")
_ORDINAL: Final = re.compile(
    r"\b(?:der|die|das|den|dem|des|am|im|vom|zum|zur|beim|ab|bis|seit|und|oder|jede[mnrs]?)"
    r"\s+\d{1,2}\.$",
    re.IGNORECASE,
)
_AFTER_ORDINAL: Final = re.compile(
    r"(?:\d{1,2}\.|\d{4}\b|(?:Jan|Jän|Feb|Mär|Mar|Apr|Mai|Maj|Jun|Jul|Aug|Sep|Okt|Oct|Nov|Dez|Dec)"
    r"[a-zä]*\b|Jahrhundert|Quartal|Auflage|Stock)"
)
_GAP: Final = re.compile(r"\s+")
_TAIL_CHARS: Final = 24
"""How much of a piece is looked at for what only seems to end it."""
_HEADING: Final = re.compile(r"\s{0,3}#{1,6}\s+(.*)")
_ITEM: Final = re.compile(r"\A\s*[-*•]\s+")
_SHORT_LINE: Final = 0.6
"""A line shorter than this share of its page's longest was broken off on purpose."""
_NOT_STARTED: Final = re.compile(r"[,;:\-–—&/(]\s*$")
_STARTER: Final = re.compile(r"\s*[A-ZÀ-ÞŠŽČĆĐА-Я0-9§•*\-|]")
_WORD: Final = re.compile(r"[^\W\d_]+(?:['’\-][^\W\d_]+)*|\d+(?:[.,]\d+)*")


def split_sentences(text: str) -> list[str]:
    """The sentences in order, without surrounding white space; none is empty."""
    pieces = (
        piece
        for _, page in split_pages(text)
        for block, is_prose in _blocks(page)
        for piece in (_split_block(block) if is_prose else [block])
    )
    plain = (" ".join(_ITEM.sub("", piece, count=1).split()) for piece in pieces)
    return [sentence for sentence in plain if sentence]


def is_whole(sentence: str) -> bool:
    """Whether it ends as a sentence does, which titles, labels and rows of tables do not."""
    return _WHOLE.search(sentence[-_TAIL_CHARS:]) is not None


def split_words(text: str) -> list[str]:
    """The words and numbers in order, as written."""
    return _WORD.findall(text)


def _blocks(page: str) -> Iterator[tuple[str, bool]]:
    """The page cut at headings, table rows and lines that end early; whether each is prose."""
    lines = page.split("\n")
    short = _SHORT_LINE * max(map(len, lines))
    block: list[str] = []
    for line, after in zip(lines, [*lines[1:], ""], strict=True):
        heading = _HEADING.fullmatch(line)
        if heading or line.startswith("|"):
            yield "\n".join(block), True
            yield (heading[1].rstrip("# \t") if heading else line), False
            block = []
            continue
        block.append(line)
        if len(line) < short and _STARTER.match(after) and not _NOT_STARTED.search(line):
            yield "\n".join(block), True
            block = []
    yield "\n".join(block), True


def _split_block(block: str) -> Iterator[str]:
    start = 0
    for match in _END.finditer(block):
        tail = block[max(start, match.end() - _TAIL_CHARS) : match.end()].rstrip()
        whole = match.end() - start <= _TAIL_CHARS
        if _only_seems_to_end(tail, block, match.end(), opens=whole):
            continue
        yield block[start : match.end()]
        start = match.end()
    yield block[start:]


def _only_seems_to_end(tail: str, block: str, end: int, *, opens: bool) -> bool:
    """Whether the dot belongs to an abbreviation, an initial, a list's number or an ordinal."""
    last = tail if opens else f"_ {tail}"  # a number alone counts only where the piece begins
    if _ABBREVIATION.search(last):
        return True
    if _NUMBER.search(tail) is None:
        return False
    if _ORDINAL.search(tail):
        return True
    gap = _GAP.match(block, end)
    after = gap.end() if gap else end
    return block[after : after + 1].islower() or _AFTER_ORDINAL.match(block, after) is not None
