"""Columns as people write them: `--column 'name[:type] = kind: template'`, and recipes in TOML."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

from everfill.autofill.columns import ColumnDraft
from everfill.compute.registry import get_kind, list_kinds
from everfill.kernel.errors import InvalidError
from everfill.tables.schema import Schedule
from everfill.tables.type_syntax import parse_type
from everfill.tables.types import ColumnType
from everfill.tables.values import JsonValue

__all__ = ["parse_column", "parse_schedule", "read_recipe"]

_FORM: Final = (
    "Write it as 'name[:type] = kind: template', such as 'lang = local:language: {{text}}'."
)
_KIND_WORD: Final = re.compile(r"[a-z][a-z0-9_]*(?::[a-z][a-z0-9_]*)?")
_KEYS: Final[Mapping[str, tuple[type, str]]] = {
    "name": (str, "text"),
    "kind": (str, "text"),
    "template": (str, "text"),
    "type": (str, "text"),
    "schedule": (str, "text"),
    "accepts_missing": (bool, "true or false"),
    "options": (dict, "a table"),
}
_REQUIRED: Final = ("name", "kind", "template")


def parse_column(text: str) -> ColumnDraft:
    """The column that a `--column` option describes.

    Raises:
        InvalidError: `column_syntax`, `kind_unknown`, or a bad type, with the right form.
    """
    head, equals, spec = text.partition("=")
    if not equals or not head.strip() or not spec.strip():
        raise InvalidError("column_syntax", f"--column {text!r} is not complete.", hint=_FORM)
    name, type_ = _split_head(head.strip())
    kind, template = _split_spec(text, spec.strip())
    return ColumnDraft(name=name, type=type_, kind=kind, template=template)


def parse_schedule(text: str) -> Schedule:
    """`on_change`, `never`, or `cron: 0 6 * * *`; the expression itself is checked later."""
    mode, _, cron = text.partition(":")
    mode = mode.strip().replace("-", "_")
    return Schedule(mode=mode, cron=cron.strip() or None if mode == "cron" else None)


def read_recipe(path: Path) -> list[ColumnDraft]:
    """The columns of a recipe, in order.

    Raises:
        InvalidError: `recipe_invalid`, with the column and the key.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        hint = f"It was looked for as {path.absolute()}."
        raise InvalidError("recipe_invalid", f"There is no recipe {path}.", hint=hint) from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidError("recipe_invalid", f"{path} cannot be read: {error}.") from None
    if unknown := document.keys() - {"column"}:
        names = ", ".join(sorted(unknown))
        hint = "A recipe holds [[column]] tables."
        raise InvalidError("recipe_invalid", f"{path}: {names} means nothing here.", hint=hint)
    columns = document.get("column", [])
    if not isinstance(columns, list) or not columns:
        raise InvalidError("recipe_invalid", f"{path} has no [[column]].")
    tables = cast("Sequence[object]", columns)
    return [_draft(path, place, table) for place, table in enumerate(tables, start=1)]


def _split_head(head: str) -> tuple[str, ColumnType | None]:
    """The name, and the type after the last colon that makes one."""
    name, colon, type_text = head.partition(":")
    if not colon:
        return head, None
    return name.strip(), parse_type(type_text)


def _split_spec(text: str, spec: str) -> tuple[str, str]:
    """The kind and the template; kinds may hold a colon, so the longest known one wins."""
    for kind in sorted(list_kinds(), key=len, reverse=True):
        if spec.startswith(kind) and spec[len(kind) :].lstrip().startswith(":"):
            return kind, spec[len(kind) :].lstrip()[1:].strip()
    word = _KIND_WORD.match(spec)
    if word is None or ":" not in spec:
        raise InvalidError("column_syntax", f"--column {text!r} names no kind.", hint=_FORM)
    get_kind(word[0])
    raise InvalidError(
        "column_syntax", f"--column {text!r}: a colon must follow the kind {word[0]}.", hint=_FORM
    )


def _draft(path: Path, place: int, table: object) -> ColumnDraft:
    if not isinstance(table, dict):
        hint = "A recipe holds [[column]] tables."
        raise InvalidError("recipe_invalid", f"{path}, column {place} is no table.", hint=hint)
    given = cast("Mapping[str, Any]", table)
    _check_keys(f"{path}, column {given.get('name', place)!r}", given)
    return ColumnDraft(
        name=given["name"],
        type=parse_type(given["type"]) if "type" in given else None,
        kind=given["kind"],
        template=given["template"],
        options=cast("Mapping[str, JsonValue]", given.get("options", {})),
        accepts_missing=given.get("accepts_missing", False),
        schedule=parse_schedule(given.get("schedule", "on_change")),
    )


def _check_keys(where: str, table: Mapping[str, Any]) -> None:
    if unknown := table.keys() - _KEYS.keys():
        hint = f"The keys are {', '.join(sorted(_KEYS))}."
        names = ", ".join(sorted(unknown))
        raise InvalidError("recipe_invalid", f"{where}: {names} means nothing here.", hint=hint)
    for key, (kind, told) in _KEYS.items():
        if key in table and not isinstance(table[key], kind):
            raise InvalidError("recipe_invalid", f"{where}: {key} must be {told}.")
        if key in _REQUIRED and key not in table:
            raise InvalidError("recipe_invalid", f"{where}: {key} is missing.")
