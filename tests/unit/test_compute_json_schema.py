from __future__ import annotations

import json

import pytest

from everfill.compute.ai import AiKind
from everfill.compute.answers import answer_schema, instructions, read_answer
from everfill.compute.json_schema import check_schema, find_faults
from everfill.compute.protocol import NotFound, Value
from everfill.kernel.errors import InvalidError
from everfill.tables.types import TEXT, ColumnType, TypeName
from everfill.tables.values import JsonValue

JSON = ColumnType(name=TypeName.JSON)
INVOICE: dict[str, JsonValue] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "required": ["number", "lines"],
    "properties": {
        "number": {"type": "string"},
        "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}},
    },
    "$defs": {
        "line": {
            "type": "object",
            "required": ["price"],
            "properties": {"price": {"type": "number"}},
        }
    },
}
RIGHT: JsonValue = {"number": "7", "lines": [{"price": 1.5}]}


def answer(value: JsonValue) -> str:
    return json.dumps({"found": value is not None, "reason": "none", "value": value})


def test_an_answer_that_fits_the_authors_schema_is_taken() -> None:
    assert read_answer(answer(RIGHT), JSON, INVOICE) == Value(value=RIGHT)


def test_a_model_may_still_say_that_there_is_nothing() -> None:
    assert read_answer(answer(None), JSON, INVOICE) == NotFound(reason="none")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"number": 7, "lines": []}, "/number: 7 is not of type"),
        ({"number": "7"}, '"lines" is a required property'),
        ({"number": "7", "lines": [{"price": 1}, {}]}, "/lines/1: "),
        ("7", "the whole: "),
    ],
)
def test_an_answer_that_does_not_is_refused_with_the_faults_and_their_places(
    value: JsonValue, words: str
) -> None:
    with pytest.raises(InvalidError) as caught:
        read_answer(answer(value), JSON, INVOICE)

    assert caught.value.code == "answer_invalid"
    assert words in caught.value.message


def test_of_many_faults_the_first_are_told() -> None:
    faults = find_faults([0] * 50, {"type": "array", "items": {"type": "string"}})

    assert faults
    assert faults.count("is not of type") == 3


def test_references_find_their_definitions_in_what_the_model_is_shown() -> None:
    schema = answer_schema(JSON, INVOICE)

    assert schema
    assert check_schema(schema)
    assert find_faults({"found": True, "reason": None, "value": RIGHT}, schema) is None
    assert find_faults({"found": True, "reason": None, "value": {"number": "7"}}, schema)
    assert json.dumps(schema) in instructions(JSON, INVOICE)


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("object", "as an object"),
        ({"type": "objekt"}, "objekt"),
        ({"$ref": "http://127.0.0.1:1/x"}, "leads outside"),
        ({"properties": {"a": {"items": [{"$ref": "file:///etc/passwd"}]}}}, "leads outside"),
        ({"$ref": "#/$defs/missing"}, "missing"),
        ({"properties": {"child": {"$ref": "#"}}}, "use #/$defs/NAME"),
        ({"pattern": "("}, "("),
    ],
)
def test_a_schema_that_is_none_is_refused_when_the_column_is_made(
    schema: JsonValue, words: str
) -> None:
    with pytest.raises(InvalidError) as caught:
        AiKind().check(JSON, {"schema": schema})

    assert caught.value.code == "option_invalid"
    assert words in str(caught.value)


def test_a_schema_is_for_json_columns() -> None:
    with pytest.raises(InvalidError, match="JSON columns"):
        AiKind().check(TEXT, {"schema": INVOICE})


@pytest.mark.parametrize(
    "options", [{"cut": "middle"}, {"input_chars_max": 5}, {"input_chars_max": "many"}]
)
def test_options_of_cuts_are_checked(options: dict[str, JsonValue]) -> None:
    with pytest.raises(InvalidError):
        AiKind().check(TEXT, options)
