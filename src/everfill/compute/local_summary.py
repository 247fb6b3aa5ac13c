# ruff: noqa: RUF001 - other scripts' letters and marks are meant
"""The `local:summary` kind: a text's most central sentences, in its own words and order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from everfill.compute.embedding import embed, excerpt
from everfill.compute.local_base import LocalKind
from everfill.compute.options import check_names, check_output_type, integer_option
from everfill.compute.protocol import (
    ComputeRequest,
    ComputeResult,
    CostClass,
    KindSpec,
    NotFound,
    Value,
)
from everfill.compute.sentences import is_whole, split_sentences, split_words
from everfill.tables.types import TEXT, ColumnType, TypeName
from everfill.tables.values import JsonValue

__all__ = ["SummaryKind"]

_SENTENCES: Final = 2
_SENTENCES_MAX: Final = 20
_SCANNED_CHARS_MAX: Final = 200_000
_EMBEDDED_SENTENCES_MAX: Final = 32
"""About 25 ms each; of a longer text the sentences richest in its frequent words compete."""
_EMBEDDED_CHARS_MAX: Final = 400
_REPETITION: Final = 0.2
"""How much nearness to a sentence already chosen counts against the next one."""

_SPEC: Final = KindSpec(
    name="local:summary",
    summary="The most central sentences of a text.",
    cost_class=CostClass.LOCAL,
    batch_max=8,
    default_type=TEXT,
    output_types=frozenset({TypeName.TEXT}),
)


class SummaryKind(LocalKind):
    """Sentences taken from the text; option `sentences` (1 to 20, default 2) says how many."""

    @property
    def spec(self) -> KindSpec:
        """What the kind declares about itself."""
        return _SPEC

    def check(self, output_type: ColumnType, options: Mapping[str, JsonValue]) -> None:
        """Refuse a count out of bounds."""
        check_output_type(_SPEC, output_type)
        check_names(options, {"sentences"})
        _wanted(options)

    def fill(self, requests: Sequence[ComputeRequest]) -> Sequence[ComputeResult]:
        """Summarise each text."""
        return [_summarise(request.text, _wanted(request.options)) for request in requests]


def _wanted(options: Mapping[str, JsonValue]) -> int:
    count = integer_option(options, "sentences", low=1, high=_SENTENCES_MAX, default=_SENTENCES)
    return count or _SENTENCES


def _summarise(text: str, count: int) -> ComputeResult:
    sentences = split_sentences(text[:_SCANNED_CHARS_MAX])
    if not sentences:
        return NotFound(reason="no text")
    if len(sentences) <= count:
        return Value(value=_join(sentences))
    whole = [sentence for sentence in sentences if is_whole(sentence)]
    if len(whole) >= count:
        sentences = whole  # titles and rows of tables say little by themselves
    shortlist = _shortlist(sentences, max(_EMBEDDED_SENTENCES_MAX, count))
    chosen = _central([sentences[index] for index in shortlist], count)
    return Value(value=_join([sentences[shortlist[index]] for index in chosen]))


def _shortlist(sentences: list[str], count: int) -> list[int]:
    """Positions of the sentences that hold most of the text's frequent words, in order."""
    if len(sentences) <= count:
        return list(range(len(sentences)))
    words = [[word.casefold() for word in split_words(sentence)] for sentence in sentences]
    frequency = Counter(word for line in words for word in line if len(word) > 1)
    weight = [sum(frequency[word] for word in set(line)) / (len(line) + 8) for line in words]
    return sorted(sorted(range(len(sentences)), key=lambda i: -weight[i])[:count])


def _central(sentences: list[str], count: int) -> list[int]:
    """Positions of the sentences nearest to all others and not to each other, in order."""
    rows = embed([excerpt(sentence, _EMBEDDED_CHARS_MAX) for sentence in sentences])
    near = rows @ rows.T
    score = near.mean(axis=1)
    chosen: list[int] = []
    for _ in range(count):
        left = [index for index in range(len(sentences)) if index not in chosen]
        penalty = {
            index: max((float(near[index, other]) for other in chosen), default=0.0)
            for index in left
        }
        chosen.append(max(left, key=lambda i: float(score[i]) - _REPETITION * penalty[i]))
    return sorted(chosen)


def _join(sentences: list[str]) -> str:
    """With spaces where the script has them."""
    text = ""
    for sentence in sentences:
        text += sentence if not text or text[-1] in "。！？｡」』" else f" {sentence}"
    return text
