from __future__ import annotations

import pytest

from everfill.compute.registry import get_kind
from everfill.kernel.errors import InvalidError
from everfill.tables.types import TEXT, ColumnType, TypeName

JSON = ColumnType(name=TypeName.JSON)
NUMBER = ColumnType(name=TypeName.NUMBER)
MOODS = ColumnType(name=TypeName.CHOICE, choices=("good", "bad"))
LABELS = ColumnType(name=TypeName.CHOICES, choices=("a", "b"))
SENTIMENTS = ColumnType(name=TypeName.CHOICE, choices=("Negative", "Neutral", "Positive"))


@pytest.mark.parametrize(
    ("kind", "output_type", "options"),
    [
        ("ai", MOODS, {"model": "m", "temperature": "0.2", "max_output_tokens": 10, "system": "s"}),
        ("template", NUMBER, {}),
        ("fetch", JSON, {"part": "text"}),
        ("fetch", TEXT, {}),
        ("extract_text", TEXT, {}),
        ("local:language", TEXT, {"languages": "en, de"}),
        ("local:language", ColumnType(name=TypeName.CHOICE, choices=("en", "fr")), {}),
        ("local:keywords", TEXT, {"count": 3}),
        ("local:keywords", ColumnType(name=TypeName.CHOICES, free=True), {}),
        ("local:sentiment", SENTIMENTS, {}),
        ("local:sentiment", TEXT, {}),
        ("local:summary", TEXT, {"sentences": "3"}),
        ("local:classify", MOODS, {}),
        ("local:classify", ColumnType(name=TypeName.CHOICES, choices=("a",)), {"threshold": 0.5}),
        ("local:embed", ColumnType(name=TypeName.VECTOR, dimensions=384), {}),
    ],
)
def test_a_definition_that_can_compute_is_accepted(
    kind: str, output_type: ColumnType, options: dict[str, object]
) -> None:
    get_kind(kind).check(output_type, options)


@pytest.mark.parametrize(
    ("kind", "output_type", "options", "code"),
    [
        ("ai", ColumnType(name=TypeName.IMAGE), {}, "type_unsupported"),
        ("ai", TEXT, {"temprature": 1}, "option_unknown"),
        ("ai", TEXT, {"temperature": 9}, "option_invalid"),
        ("ai", TEXT, {"temperature": "hot"}, "option_invalid"),
        ("ai", TEXT, {"max_output_tokens": 1.5}, "option_invalid"),
        ("ai", TEXT, {"max_output_tokens": True}, "option_invalid"),
        ("ai", TEXT, {"model": " "}, "option_invalid"),
        ("template", ColumnType(name=TypeName.IMAGE), {}, "type_unsupported"),
        ("template", TEXT, {"part": "x"}, "option_unknown"),
        ("fetch", NUMBER, {}, "type_unsupported"),
        ("fetch", TEXT, {"part": "page"}, "option_invalid"),
        ("fetch", JSON, {"part": "head"}, "option_invalid"),
        ("extract_text", JSON, {}, "type_unsupported"),
        ("local:language", TEXT, {"languages": "klingon"}, "option_invalid"),
        ("local:language", TEXT, {"languages": 3}, "option_invalid"),
        ("local:language", MOODS, {}, "option_invalid"),
        ("local:keywords", TEXT, {"count": 0}, "option_invalid"),
        (
            "local:keywords",
            ColumnType(name=TypeName.CHOICES, choices=("a",)),
            {},
            "type_unsupported",
        ),
        ("local:sentiment", MOODS, {}, "type_unsupported"),
        ("local:summary", TEXT, {"sentences": 99}, "option_invalid"),
        ("local:classify", TEXT, {}, "type_unsupported"),
        ("local:classify", ColumnType(name=TypeName.CHOICE, free=True), {}, "choices_empty"),
        ("local:classify", MOODS, {"threshold": 2}, "option_invalid"),
        ("local:embed", ColumnType(name=TypeName.VECTOR, dimensions=3), {}, "type_unsupported"),
    ],
)
def test_a_definition_that_cannot_compute_is_refused_when_it_is_made(
    kind: str, output_type: ColumnType, options: dict[str, object], code: str
) -> None:
    with pytest.raises(InvalidError) as caught:
        get_kind(kind).check(output_type, options)

    assert caught.value.code == code
