"""JSON schemas that a column's author writes: checked when the column is made, and held to.

The validator is jsonschema-rs. A schema may refer to its own parts alone: nothing is fetched.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from everfill.kernel.errors import InvalidError
from everfill.tables.values import JsonValue

__all__ = ["check_schema", "find_faults"]

_INSIDE: Final = ("#/$defs/", "#/definitions/")
"""These move with the schema into what the model is shown."""
_FAULTS_TOLD: Final = 3
_KEPT: Final = 100
"""Validators in memory, a column each."""


def check_schema(schema: JsonValue) -> Mapping[str, JsonValue]:
    """The schema, if it is one.

    Raises:
        InvalidError: `option_invalid`, with what is wrong with it.
    """
    if not isinstance(schema, dict):
        raise _invalid("it must be a JSON schema, as an object")
    for reference in _references(schema):
        if not isinstance(reference, str) or not reference.startswith(_INSIDE):
            raise _invalid(f"$ref {reference!r} leads outside of it; use #/$defs/NAME")
    try:
        _validator(json.dumps(schema, sort_keys=True))
    except ValueError as error:
        raise _invalid(str(error).splitlines()[0]) from None
    return schema


def find_faults(value: JsonValue, schema: Mapping[str, JsonValue]) -> str | None:
    """What is wrong with a value, the first few faults with their places; None where it fits."""
    validator = _validator(json.dumps(schema, sort_keys=True))
    faults: list[str] = []
    for error in validator.iter_errors(value):
        place = "".join(f"/{part}" for part in error.instance_path) or "the whole"
        faults.append(f"{place}: {error.message}")
        if len(faults) == _FAULTS_TOLD:
            break
    return "; ".join(faults) or None


@lru_cache(maxsize=_KEPT)
def _validator(schema: str) -> Any:
    import jsonschema_rs  # noqa: PLC0415 - for columns that have a schema alone

    return jsonschema_rs.validator_for(schema)


def _references(part: JsonValue) -> Iterator[JsonValue]:
    if isinstance(part, dict):
        for key, value in part.items():
            if key in {"$ref", "$dynamicRef"}:
                yield value
            yield from _references(value)
    elif isinstance(part, list):
        for value in part:
            yield from _references(value)


def _invalid(reason: str) -> InvalidError:
    return InvalidError("option_invalid", f"Option schema: {reason}.")
