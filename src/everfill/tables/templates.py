"""Templates and prompts: text with `{{column}}` references.

People write names; the database keeps ids (`{{#12}}`), so that a rename never breaks a reference. A
backslash before `{{` makes it ordinary text.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final

from everfill.kernel import limits
from everfill.kernel.errors import InvalidError
from everfill.kernel.ids import ColumnId

__all__ = ["bind", "mentions", "references", "render", "repoint", "sole_reference", "unbind"]

_TOKEN: Final = re.compile(r"\\\{\{|\{\{(.*?)\}\}|\{\{", re.DOTALL)
_STORED: Final = re.compile(r"\\\{\{|\{\{#(\d+)\}\}")


def bind(template: str, names: Mapping[str, ColumnId]) -> str:
    """The stored form of a template as a person wrote it.

    Raises:
        InvalidError: `template_unclosed`, `template_too_long` or `column_unknown`.
    """
    if len(template) > limits.TEMPLATE_CHARS_MAX:
        message = f"The template has {len(template)} characters; {limits.TEMPLATE_CHARS_MAX} fit."
        raise InvalidError("template_too_long", message)

    def stored(match: re.Match[str]) -> str:
        if match[0].startswith("\\"):
            return match[0]
        if match[1] is None:
            raise _unclosed(template, match.start())
        return f"{{{{#{_column(match[1].strip(), names)}}}}}"

    return _TOKEN.sub(stored, template)


def unbind(stored: str, names: Mapping[ColumnId, str]) -> str:
    """The template as a person reads it, with the columns' present names."""
    return _STORED.sub(
        lambda match: f"{{{{{names[ColumnId(int(match[1]))]}}}}}" if match[1] else match[0], stored
    )


def mentions(template: str) -> set[str]:
    """The names that a template as a person wrote it refers to, known or not."""
    return {match[1].strip() for match in _TOKEN.finditer(template) if match[1]}


def repoint(stored: str, ids: Mapping[ColumnId, ColumnId]) -> str:
    """The same template over other columns, for a copy of the collection."""
    return _STORED.sub(
        lambda match: f"{{{{#{ids[ColumnId(int(match[1]))]}}}}}" if match[1] else match[0], stored
    )


@lru_cache(maxsize=4_096)
def references(stored: str) -> tuple[ColumnId, ...]:
    """The columns a stored template reads, each once, in order of mention."""
    found = (ColumnId(int(match[1])) for match in _STORED.finditer(stored) if match[1])
    return tuple(dict.fromkeys(found))


@lru_cache(maxsize=4_096)
def sole_reference(stored: str) -> ColumnId | None:
    """The one column that the template is, where it is nothing but one reference."""
    match = _STORED.fullmatch(stored.strip())
    return ColumnId(int(match[1])) if match and match[1] else None


def render(stored: str, text_of: Callable[[ColumnId], str]) -> str:
    """The text with every reference replaced."""
    parts = _parts(stored)
    return "".join([part if isinstance(part, str) else text_of(ColumnId(part)) for part in parts])


@lru_cache(maxsize=4_096)
def _parts(stored: str) -> tuple[str | int, ...]:
    """Literal texts and column ids, in order."""
    parts: list[str | int] = []
    end = 0
    for match in _STORED.finditer(stored):
        parts.append(stored[end : match.start()])
        parts.append(int(match[1]) if match[1] else "{{")
        end = match.end()
    parts.append(stored[end:])
    return tuple(part for part in parts if part != "")


def _column(name: str, names: Mapping[str, ColumnId]) -> ColumnId:
    if name in names:
        return names[name]
    close = difflib.get_close_matches(name, names, n=1)
    known = ", ".join(names) or "none"
    hint = f"Did you mean {{{{{close[0]}}}}}?" if close else f"The columns are: {known}."
    raise InvalidError("column_unknown", f"There is no column {name!r}.", hint=hint)


def _unclosed(template: str, position: int) -> InvalidError:
    excerpt = template[position : position + 30]
    return InvalidError(
        "template_unclosed",
        f"A reference opens at character {position + 1} and never closes: {excerpt!r}.",
        hint="Close it with }}, or write \\{{ for two braces as text.",
    )
