"""The `local:keywords` kind: the phrases of a text that are nearest to its whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from everfill.compute.embedding import embed, excerpt
from everfill.compute.local_base import LocalKind
from everfill.compute.options import check_names, check_output_type, integer_option
from everfill.compute.phrases import candidate_phrases
from everfill.compute.protocol import (
    ComputeRequest,
    ComputeResult,
    CostClass,
    KindSpec,
    NotFound,
    Value,
)
from everfill.kernel.errors import InvalidError
from everfill.tables.types import ColumnType, TypeName
from everfill.tables.values import JsonValue

__all__ = ["KeywordsKind"]

_COUNT: Final = 5
_COUNT_MAX: Final = 20
_CANDIDATES_MAX: Final = 24
"""About 7 ms each."""
_SCANNED_CHARS_MAX: Final = 50_000
_TEXT_CHARS_MAX: Final = 2_000
_REPETITION: Final = 0.4

_SPEC: Final = KindSpec(
    name="local:keywords",
    summary="The phrases that say what a text is about, best first.",
    cost_class=CostClass.LOCAL,
    batch_max=8,
    default_type=ColumnType(name=TypeName.JSON),
    output_types=frozenset({TypeName.JSON, TypeName.TEXT, TypeName.CHOICES}),
)


class KeywordsKind(LocalKind):
    """A list of phrases (a text column joins them with commas); option `count`, default 5."""

    @property
    def spec(self) -> KindSpec:
        """What the kind declares about itself."""
        return _SPEC

    def check(self, output_type: ColumnType, options: Mapping[str, JsonValue]) -> None:
        """Refuse a closed list of choices: the text decides what its keywords are."""
        check_output_type(_SPEC, output_type)
        check_names(options, {"count"})
        _wanted(options)
        if output_type.name is TypeName.CHOICES and not output_type.free:
            message = "local:keywords takes its words from the text, not from a list."
            hint = "Let the column take free values, or use local:classify."
            raise InvalidError("type_unsupported", message, hint=hint)

    def fill(self, requests: Sequence[ComputeRequest]) -> Sequence[ComputeResult]:
        """Find the keywords of each text."""
        return [_find(request) for request in requests]


def _wanted(options: Mapping[str, JsonValue]) -> int:
    return integer_option(options, "count", low=1, high=_COUNT_MAX, default=_COUNT) or _COUNT


def _find(request: ComputeRequest) -> ComputeResult:
    count = _wanted(request.options)
    text = request.text[:_SCANNED_CHARS_MAX]
    candidates = candidate_phrases(text, max(_CANDIDATES_MAX, count * 2))
    if not candidates:
        return NotFound(reason="no words in the text")
    keywords = _nearest(excerpt(text, _TEXT_CHARS_MAX), candidates, count)
    if request.output_type.name is TypeName.TEXT:
        return Value(value=", ".join(keywords))
    return Value(value=[*keywords])


def _nearest(text: str, candidates: list[str], count: int) -> list[str]:
    """The candidates nearest to the text, without those that repeat a nearer one's words."""
    rows = embed([text, *candidates])
    score = rows[1:] @ rows[0]
    near = rows[1:] @ rows[1:].T
    chosen: list[int] = []
    left = list(range(len(candidates)))
    while left and len(chosen) < count:
        repeated = {i: max((float(near[i, j]) for j in chosen), default=0.0) for i in left}
        chosen.append(max(left, key=lambda i: float(score[i]) - _REPETITION * repeated[i]))
        left = [i for i in left if not _overlap(candidates[i], candidates[chosen[-1]])]
    return [candidates[index] for index in chosen]


def _overlap(one: str, other: str) -> bool:
    """Whether the phrases share a word, or one is inside the other."""
    first, second = one.casefold(), other.casefold()
    return bool({*first.split()} & {*second.split()}) or first in second or second in first
