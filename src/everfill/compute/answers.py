"""What a model is asked to answer for a column type, and how its answer is read. No I/O.

Text columns take the answer as it is. Every other type asks for a JSON object that either holds
the value or says that the inputs do not hold it, so that a model is never forced to guess.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final, cast

from everfill.compute.json_schema import find_faults
from everfill.compute.protocol import NotFound, Value
from everfill.kernel.errors import InvalidError
from everfill.tables.parse import parse_value
from everfill.tables.types import ColumnType, TypeName
from everfill.tables.values import JsonValue

__all__ = ["ANSWERABLE", "answer_schema", "instructions", "read_answer"]

ANSWERABLE: Final = frozenset(
    {
        TypeName.TEXT,
        TypeName.NUMBER,
        TypeName.BOOLEAN,
        TypeName.DATE,
        TypeName.DATETIME,
        TypeName.CHOICE,
        TypeName.CHOICES,
        TypeName.JSON,
        TypeName.URL,
    }
)
_FENCE: Final = re.compile(r"\s*```(?:json)?\s*\n?(.*?)\n?\s*```\s*", re.DOTALL)
_DEFINITIONS: Final = ("$defs", "definitions")
_NO_REASON: Final = "the model found no answer in the inputs"
_SIMPLE: Final[Mapping[TypeName, JsonValue]] = {
    TypeName.NUMBER: {"type": ["number", "null"]},
    TypeName.BOOLEAN: {"type": ["boolean", "null"]},
    TypeName.DATE: {"type": ["string", "null"], "description": "A date as YYYY-MM-DD."},
    TypeName.DATETIME: {
        "type": ["string", "null"],
        "description": "A time in ISO 8601 with its offset, as 2026-01-31T14:00:00+01:00.",
    },
    TypeName.URL: {"type": ["string", "null"], "description": "A full URL."},
}


def answer_schema(
    output_type: ColumnType, own: Mapping[str, JsonValue] | None = None
) -> dict[str, JsonValue] | None:
    """The JSON schema of an answer, or None where it is plain text.

    Args:
        output_type: What the column stores.
        own: The author's schema of a JSON value.
    """
    if output_type.name is TypeName.TEXT:
        return None
    parts = {key: own[key] for key in _DEFINITIONS if key in own} if own else {}
    return {
        "type": "object",
        "properties": {
            "found": {"type": "boolean", "description": "Whether the input holds the answer."},
            "reason": {
                "type": ["string", "null"],
                "description": "If not found: why, in a few words. Else null.",
            },
            "value": _own_schema(own) if own else _value_schema(output_type),
        },
        "required": ["found", "reason", "value"],
        "additionalProperties": False,
        **parts,
    }


def instructions(output_type: ColumnType, own: Mapping[str, JsonValue] | None = None) -> str:
    """What the model is told besides the column's own prompt."""
    schema = answer_schema(output_type, own)
    if schema is None:
        return "Answer with the text asked for and nothing else: no preamble, no remarks."
    return (
        "Answer with one JSON object of this schema and nothing else. If the input does not hold "
        "the answer, set found to false, value to null and say why in reason; never guess.\n"
        f"{json.dumps(schema, ensure_ascii=False)}"
    )


def read_answer(
    text: str, output_type: ColumnType, own: Mapping[str, JsonValue] | None = None
) -> Value | NotFound:
    """The value in a model's answer.

    Raises:
        InvalidError: `answer_invalid`, with words that tell the model what was wrong.
    """
    if output_type.name is TypeName.TEXT:
        if not text.strip():
            raise _invalid("The answer was empty.")
        return Value(value=text.strip())
    answer = _read_object(text)
    value = answer.get("value")
    if answer.get("found") is False or (value is None and answer.get("found") is not True):
        return NotFound(reason=str(answer.get("reason") or _NO_REASON))
    if value is None:
        raise _invalid("The answer says that a value was found, and value is null.")
    if own and (faults := find_faults(value, own)):
        raise _invalid(f"The value does not fit its schema: {faults}.")
    return Value(value=_fit(value, output_type))


def _own_schema(own: Mapping[str, JsonValue]) -> JsonValue:
    """The author's schema, or null; its definitions move up, where references look for them."""
    body = {key: value for key, value in own.items() if key not in {*_DEFINITIONS, "$schema"}}
    return {"anyOf": [body, {"type": "null"}]}


def _value_schema(output_type: ColumnType) -> JsonValue:
    name = output_type.name
    if name is TypeName.CHOICE:
        return {"anyOf": [_label_schema(output_type), {"type": "null"}]}
    if name is TypeName.CHOICES:
        return {"type": ["array", "null"], "items": _label_schema(output_type)}
    if name is TypeName.NUMBER and output_type.format == "integer":
        return {"type": ["integer", "null"]}
    return _SIMPLE.get(name, {"description": "Any JSON value, or null."})


def _label_schema(output_type: ColumnType) -> JsonValue:
    if not output_type.free:
        return {"type": "string", "enum": [*output_type.choices]}
    known = f"Preferably one of: {', '.join(output_type.choices)}." if output_type.choices else ""
    return {"type": "string", "description": known or "A short label."}


def _read_object(text: str) -> dict[str, JsonValue]:
    fenced = _FENCE.fullmatch(text)
    try:
        answer = cast("JsonValue", json.loads(fenced[1] if fenced else text))
    except (ValueError, RecursionError) as error:
        raise _invalid(f"The answer is not valid JSON: {error}.") from None
    if not isinstance(answer, dict) or not {"value", "found"} & set(answer):
        raise _invalid("The answer is not a JSON object with found, reason and value.")
    return answer


def _fit(value: JsonValue, output_type: ColumnType) -> JsonValue:
    """The value as the column stores it; labels are matched whatever their case."""
    if output_type.name is TypeName.CHOICE:
        value = _label(value, output_type)
    elif output_type.name is TypeName.CHOICES:
        value = (
            [_label(item, output_type) for item in value if item is not None]
            if isinstance(value, list)
            else [_label(value, output_type)]
        )
    elif output_type.name is TypeName.JSON:
        return value
    try:
        return parse_value(value, output_type)
    except InvalidError as error:
        raise _invalid(str(error)) from None


def _label(value: JsonValue, output_type: ColumnType) -> str:
    text = value.strip() if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    by_fold = {choice.casefold(): choice for choice in output_type.choices}
    if known := by_fold.get(text.casefold()):
        return known
    if output_type.free and text:
        return text
    raise _invalid(f"{text!r} is not one of: {', '.join(output_type.choices)}.")


def _invalid(message: str) -> InvalidError:
    return InvalidError("answer_invalid", message)
