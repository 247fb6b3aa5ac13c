"""The type of a column whose values already have types: JSON, spreadsheets.

Text stays text, however much it looks like a number: whoever wrote it in quotation marks meant so.
Only days, moments and web addresses are told from other text, for JSON has no type of their own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time
from typing import Final, cast

from everfill.tables.infer import Reader, is_web_address, iso_date, iso_datetime
from everfill.tables.types import TEXT, ColumnType, TypeName
from everfill.tables.values import JsonValue, to_text

__all__ = ["ValueProfile", "fit_value", "plain_value"]

_WORDS: Final[tuple[tuple[TypeName, Reader], ...]] = (
    (TypeName.DATE, iso_date),
    (TypeName.DATETIME, iso_datetime),
    (TypeName.URL, is_web_address),
)


def _kind(value: object) -> TypeName:
    match value:
        case bool():
            return TypeName.BOOLEAN
        case int() | float():
            return TypeName.NUMBER
        case datetime():
            return TypeName.DATETIME
        case date():
            return TypeName.DATE
        case list() | dict():
            return TypeName.JSON
        case _:
            return TypeName.TEXT


@dataclass(slots=True)
class ValueProfile:
    """What the values of one column have in common.

    Attributes:
        mixed: The type of a column of several kinds.
    """

    mixed: TypeName
    kinds: set[TypeName] = field(default_factory=set[TypeName])
    words: list[tuple[TypeName, Reader]] = field(default_factory=lambda: list(_WORDS))

    def observe(self, values: Iterable[object]) -> None:
        """Take note of values that are there and not null."""
        for value in values:
            kind = _kind(value)
            self.kinds.add(kind)
            if kind is TypeName.TEXT and self.words:
                text = str(value)
                self.words = [(name, read) for name, read in self.words if read(text) is not None]

    def decide(self) -> ColumnType:
        """The column's type."""
        if not self.kinds:
            return TEXT
        if self.kinds == {TypeName.TEXT}:
            return ColumnType(name=self.words[0][0]) if self.words else TEXT
        if len(self.kinds) == 1:
            return ColumnType(name=next(iter(self.kinds)))
        if self.kinds == {TypeName.DATE, TypeName.DATETIME}:
            return ColumnType(name=TypeName.DATETIME)
        return ColumnType(name=self.mixed)


def plain_value(value: object) -> JsonValue:
    """A value of Python's richer types as JSON says it.

    A moment without an offset is UTC, and NaN is null.
    """
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, (list, tuple)):
        return [plain_value(item) for item in cast("Sequence[object]", value)]
    if isinstance(value, dict):
        items = cast("Mapping[object, object]", value).items()
        return {str(key): plain_value(item) for key, item in items}
    return _plain_text(value)


def _plain_text(value: object) -> str:
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).isoformat()
    return value.isoformat() if isinstance(value, (date, time)) else str(value)


def fit_value(value: object, name: TypeName) -> JsonValue:
    """A value as its column wants it; one of another kind stays as it is."""
    if value is None:
        return None
    if name is TypeName.DATETIME:
        if isinstance(value, date) and not isinstance(value, datetime):
            value = datetime(value.year, value.month, value.day, tzinfo=UTC)
        if isinstance(value, str):
            return iso_datetime(value) or value
    plain = plain_value(value)
    return to_text(plain) if name is TypeName.TEXT else plain
