"""The `local:language` kind: which language a text is written in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Final, Protocol, cast

from everfill.compute.local_base import LocalKind
from everfill.compute.options import check_names, check_output_type
from everfill.compute.protocol import (
    ComputeRequest,
    ComputeResult,
    CostClass,
    KindSpec,
    NotFound,
    Value,
)
from everfill.kernel.errors import InvalidError
from everfill.tables.types import TEXT, ColumnType, TypeName
from everfill.tables.values import JsonValue

__all__ = ["LanguageKind"]

_SPEC: Final = KindSpec(
    name="local:language",
    summary="The language of a text, as its ISO 639 code.",
    cost_class=CostClass.LOCAL,
    batch_max=256,
    default_type=TEXT,
    output_types=frozenset({TypeName.TEXT, TypeName.CHOICE}),
)
_TEXT_CHARS_MAX: Final = 5_000
"""A language shows in far less, and the identifier walks every byte."""
_NO_FEATURE: Final = -1e38
"""Scores below this mean that nothing in the text told languages apart."""
_NO_LANGUAGE: Final = "zxx"
_UNKNOWN: Final = NotFound(reason="the text is too short or has no words to tell a language")
_RARE: Final = frozenset(
    {"arz", "ary", "bcl", "ext", "gcf", "gcr", "gom", "ltg", "sdh", "uzs", "vec", "wuu", "yue"}
)
"""Written like a more common language, and taken for it unless asked for by option."""


class _Identifier(Protocol):
    @property
    def labels(self) -> list[str]: ...
    def rank(self, text: str) -> list[tuple[str, float]]: ...


class LanguageKind(LocalKind):
    """An ISO 639 code such as `de`; option `languages` (a list, or text with commas) narrows it.

    A choice column narrows it to its own list.
    """

    @property
    def spec(self) -> KindSpec:
        """What the kind declares about itself."""
        return _SPEC

    def check(self, output_type: ColumnType, options: Mapping[str, JsonValue]) -> None:
        """Refuse codes that no text could get; loads the identifier where codes are named."""
        check_output_type(_SPEC, output_type)
        check_names(options, {"languages"})
        wanted = _wanted(output_type, options)
        if wanted and (unknown := sorted(wanted - set(_identifier().labels))):
            message = f"Not a language that can be told: {', '.join(unknown)}."
            hint = f"Known: {', '.join(_identifier().labels)}."
            raise InvalidError("option_invalid", message, hint=hint)

    def fill(self, requests: Sequence[ComputeRequest]) -> Sequence[ComputeResult]:
        """Name the likeliest language of each text."""
        return [
            _tell(request.text, _wanted(request.output_type, request.options))
            for request in requests
        ]


def _wanted(output_type: ColumnType, options: Mapping[str, JsonValue]) -> frozenset[str]:
    given = options.get("languages")
    if given is None:
        fixed = output_type.name is TypeName.CHOICE and not output_type.free
        return frozenset(output_type.choices if fixed else ())
    codes = given.split(",") if isinstance(given, str) else given
    if not isinstance(codes, list) or not all(isinstance(code, str) for code in codes):
        message = f"Option languages is {given!r}; it must be a list of codes such as en,de."
        raise InvalidError("option_invalid", message)
    return frozenset(str(code).strip() for code in codes)


def _tell(text: str, wanted: frozenset[str]) -> ComputeResult:
    ranked = _identifier().rank(text[:_TEXT_CHARS_MAX])
    best, score = next(
        pair for pair in ranked if pair[0] in wanted or (not wanted and pair[0] not in _RARE)
    )
    if score < _NO_FEATURE or best == _NO_LANGUAGE:
        return _UNKNOWN
    return Value(value=best)


@cache
def _identifier() -> _Identifier:
    from py3langid.langid import (  # noqa: PLC0415 # pyright: ignore[reportMissingTypeStubs] - 1 s
        MODEL_FILE,
        LanguageIdentifier,
    )

    made = cast("object", LanguageIdentifier.from_model_file(MODEL_FILE))  # pyright: ignore[reportUnknownMemberType] - the package is untyped
    return cast("_Identifier", made)
