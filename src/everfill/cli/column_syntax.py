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
_KEYS: Final = frozenset(
    {"name", "type", "kind", "template", "options", "schedule", "accepts_missing"}
)


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
        raise InvalidError("recipe_invalid", f"There is no recipe {path}.") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidError("recipe_invalid", f"{path} cannot be read: {error}.") from None
    if unknown := document.keys() - {"column"}:
        names = ", ".join(sorted(unknown))
        hint = "A recipe holds [[column]] tables."
        raise InvalidError("recipe_invalid", f"{path}: {names} means nothing here.", hint=hint)
    columns = document.get("column", [])
    if not isinstance(columns, list) or not columns:
        raise InvalidError("recipe_invalid", f"{path} has no [[column]].")
    tables = cast("Sequence[Mapping[str, Any]]", columns)
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


def _draft(path: Path, place: int, table: Mapping[str, Any]) -> ColumnDraft:
    where = f"{path}, column {table.get('name', place)!r}"
    if unknown := table.keys() - _KEYS:
        hint = f"The keys are {', '.join(sorted(_KEYS))}."
        names = ", ".join(sorted(unknown))
        raise InvalidError("recipe_invalid", f"{where}: {names} means nothing here.", hint=hint)
    for key in ("name", "kind", "template"):
        if not isinstance(table.get(key), str):
            raise InvalidError("recipe_invalid", f"{where}: {key} is missing or no text.")
    options = table.get("options", {})
    if not isinstance(options, dict):
        raise InvalidError("recipe_invalid", f"{where}: options must be a table.")
    return ColumnDraft(
        name=table["name"],
        type=parse_type(table["type"]) if "type" in table else None,
        kind=table["kind"],
        template=table["template"],
        options=cast("Mapping[str, JsonValue]", options),
        accepts_missing=bool(table.get("accepts_missing", False)),
        schedule=parse_schedule(str(table.get("schedule", "on_change"))),
    )
