from __future__ import annotations

import json

import pytest

from everfill.compute.answers import ANSWERABLE, answer_schema, instructions, read_answer
from everfill.compute.protocol import NotFound, Value
from everfill.kernel.errors import InvalidError
from everfill.tables.types import TEXT, ColumnType, TypeName

NUMBER = ColumnType(name=TypeName.NUMBER)
MOOD = ColumnType(name=TypeName.CHOICE, choices=("Good", "Bad"))
LABELS = ColumnType(name=TypeName.CHOICES, choices=("red", "green"))


def test_every_type_but_text_may_say_that_nothing_was_found() -> None:
    for name in ANSWERABLE - {TypeName.TEXT}:
        free = name in {TypeName.CHOICE, TypeName.CHOICES}
        schema = answer_schema(ColumnType(name=name, free=free))
        assert schema is not None
        assert schema["required"] == ["found", "reason", "value"]
        assert schema["additionalProperties"] is False
    assert answer_schema(TEXT) is None


def test_a_closed_list_is_in_the_schema_and_in_the_words() -> None:
    schema = answer_schema(MOOD)

    assert schema is not None
    assert schema["properties"]["value"]["anyOf"][0] == {"type": "string", "enum": ["Good", "Bad"]}
    assert json.dumps(schema) in instructions(MOOD)


@pytest.mark.parametrize(
    ("output_type", "answer", "result"),
    [
        (TEXT, " Hello.\n", Value(value="Hello.")),
        (TEXT, '{"found": false}', Value(value='{"found": false}')),
        (MOOD, '{"found": true, "value": " bad "}', Value(value="Bad")),
        (LABELS, '{"found": true, "value": ["GREEN"]}', Value(value=["green"])),
        (LABELS, '{"found": true, "value": "red"}', Value(value=["red"])),
        (LABELS, '{"found": true, "value": []}', Value(value=[])),
        (NUMBER, '```\n{"value": 2}\n```', Value(value=2)),
        (NUMBER, '{"value": null, "reason": "none given"}', NotFound(reason="none given")),
        (NUMBER, '{"found": false, "value": 3, "reason": null}', None),
    ],
)
def test_an_answer_is_read_as_its_column_stores_it(
    output_type: ColumnType, answer: str, result: Value | NotFound | None
) -> None:
    read = read_answer(answer, output_type)

    assert read == result if result else isinstance(read, NotFound)


@pytest.mark.parametrize(
    ("output_type", "answer"),
    [
        (TEXT, " "),
        (NUMBER, "three"),
        (NUMBER, '{"found": true, "value": "three"}'),
        (NUMBER, '{"found": true, "value": true}'),
        (NUMBER, '{"answer": 3}'),
        (MOOD, '{"found": true, "value": "Ugly"}'),
        (LABELS, '{"found": true, "value": ["red", "blue"]}'),
    ],
)
def test_an_answer_that_does_not_fit_is_refused(output_type: ColumnType, answer: str) -> None:
    with pytest.raises(InvalidError) as caught:
        read_answer(answer, output_type)

    assert caught.value.code == "answer_invalid"
