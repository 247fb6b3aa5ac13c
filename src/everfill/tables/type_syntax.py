"""Column types as people write them: `choice(good,bad)`, `number(EUR)`, `vector(384)`.

A label with a comma, a bracket or a quote in it is written in double quotes, inner quotes doubled.
`*` among the labels of a choice lets in others besides.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import Final

from everfill.kernel.errors import InvalidError
from everfill.tables.types import ColumnType, TypeName

__all__ = ["format_type", "parse_type"]

_SPEC: Final = re.compile(r"\s*([a-z_]+)\s*(?:\((.*)\))?\s*", re.DOTALL)
_ARGUMENT: Final = re.compile(r'\s*+(?:"((?:[^"]|"")*+)"\s*+|([^",]*+))(,|\Z)', re.DOTALL)
"""Each piece takes all it can and gives nothing back: a hostile text costs no more than its length.
"""
_PLAIN: Final = re.compile(r'[^\s",()*](?:[^",()]*[^\s",()])?')
_NUMBER_FORMATS: Final = re.compile(r"integer|decimal|percent|[A-Z]{3}")
_LENGTH: Final = re.compile("[0-9]{1,9}")
_SHOWN_CHARS: Final = 60
_CHOICES: Final = frozenset({TypeName.CHOICE, TypeName.CHOICES})


def parse_type(text: str) -> ColumnType:
    """The type that a text names.

    Raises:
        InvalidError: `type_invalid` (or `choices_empty`, `choices_invalid`), with the right form.
    """
    match = _SPEC.fullmatch(text)
    if match is None:
        raise InvalidError("type_invalid", f"{_shown(text)} is no column type.", hint=_known())
    name = _name(match[1])
    arguments = _arguments(text, match[2])
    if name in _CHOICES:
        return _choices(name, arguments)
    if name is TypeName.NUMBER:
        return ColumnType(name=name, format=_number_format(arguments))
    if name is TypeName.VECTOR:
        return ColumnType(name=name, dimensions=_dimensions(arguments))
    if arguments:
        raise InvalidError("type_invalid", f"A {name} column takes nothing in brackets.")
    return ColumnType(name=name)


def format_type(type_: ColumnType) -> str:
    """The text that `parse_type` reads as this type."""
    arguments = [_quote(label) for label in type_.choices]
    if type_.free:
        arguments.append("*")
    if type_.format:
        arguments.append(type_.format)
    if type_.dimensions:
        arguments.append(str(type_.dimensions))
    return f"{type_.name}({','.join(arguments)})" if arguments else str(type_.name)


def _name(text: str) -> TypeName:
    try:
        return TypeName(text)
    except ValueError:
        close = get_close_matches(text[:_SHOWN_CHARS], list(TypeName), n=1)
        hint = f"Did you mean {close[0]}?" if close else _known()
        raise InvalidError("type_invalid", f"There is no type {_shown(text)}.", hint=hint) from None


def _arguments(text: str, inside: str | None) -> list[tuple[str, bool]]:
    """What stands in the brackets: each argument, and whether it was quoted."""
    if inside is None or not inside.strip():
        return []
    found: list[tuple[str, bool]] = []
    position = 0
    while True:
        match = _ARGUMENT.match(inside, position)
        if match is None:
            hint = 'Write a label with commas or quotes as "a ""quoted"" label".'
            raise InvalidError("type_invalid", f"{_shown(text)} is not well formed.", hint=hint)
        quoted = match[1] is not None
        found.append((match[1].replace('""', '"') if quoted else match[2].rstrip(), quoted))
        position = match.end()
        if not match[3]:
            return found


def _choices(name: TypeName, arguments: list[tuple[str, bool]]) -> ColumnType:
    free = ("*", False) in arguments
    labels = tuple(label for label, quoted in arguments if quoted or label != "*")
    return ColumnType(name=name, choices=labels, free=free)


def _number_format(arguments: list[tuple[str, bool]]) -> str | None:
    if not arguments:
        return None
    if len(arguments) > 1 or not _NUMBER_FORMATS.fullmatch(arguments[0][0]):
        raise InvalidError(
            "type_invalid",
            f"{_shown(arguments[0][0])} is no number format.",
            hint="Write integer, decimal, percent, or a currency code such as EUR.",
        )
    return arguments[0][0]


def _dimensions(arguments: list[tuple[str, bool]]) -> int | None:
    if not arguments:
        return None
    text = arguments[0][0]
    if len(arguments) > 1 or not _LENGTH.fullmatch(text):
        raise InvalidError(
            "type_invalid", f"{_shown(text)} is no length of a vector.", hint="Write vector(384)."
        )
    return int(text)


def _quote(label: str) -> str:
    return label if _PLAIN.fullmatch(label) else '"' + label.replace('"', '""') + '"'


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…")


def _known() -> str:
    return f"The types are: {', '.join(TypeName)}."
