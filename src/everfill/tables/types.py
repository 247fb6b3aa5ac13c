"""Column types: what a column stores, as data. How text becomes such a value is in `parse`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from everfill.kernel import limits
from everfill.kernel.errors import InvalidError

__all__ = ["FILE_TYPES", "NUMBER_FORMATS", "TEXT", "ColumnType", "TypeName"]

NUMBER_FORMATS = frozenset({"integer", "decimal", "percent"})
"""Ways to show a number besides a currency code. A percentage is stored as its hundredth."""

_CURRENCY = re.compile("[A-Z]{3}")


class TypeName(StrEnum):
    """The names of the column types."""

    TEXT = "text"
    NUMBER = "number"
    BOOLEAN = "boolean"
    DATE = "date"
    DATETIME = "datetime"
    CHOICE = "choice"
    CHOICES = "choices"
    JSON = "json"
    URL = "url"
    DOCUMENT = "document"
    IMAGE = "image"
    AUDIO = "audio"
    VIDEO = "video"
    VECTOR = "vector"


FILE_TYPES = frozenset({TypeName.DOCUMENT, TypeName.IMAGE, TypeName.AUDIO, TypeName.VIDEO})
"""Values are `{"name": str, "mime": str, "size_bytes": int, "sha256": str}`; bytes are blobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnType:
    """A type with its parameters.

    Attributes:
        name: Which type.
        choices: The labels of a choice or choices column, in order.
        free: Whether such a column also takes labels outside its list.
        format: How a number is shown: `integer`, `decimal`, `percent`, or a currency code (`EUR`).
        dimensions: The length of a vector; None where any length will do.
    """

    name: TypeName
    choices: tuple[str, ...] = ()
    free: bool = False
    format: str | None = None
    dimensions: int | None = None

    def __post_init__(self) -> None:
        if self.name in {TypeName.CHOICE, TypeName.CHOICES}:
            self._check_choices()
        elif self.choices or self.free:
            raise InvalidError("type_invalid", f"A {self.name} column takes no list of choices.")
        self._check_format()
        self._check_dimensions()

    def _check_format(self) -> None:
        if self.format is None:
            return
        if self.name is not TypeName.NUMBER:
            raise InvalidError("type_invalid", f"A {self.name} column takes no number format.")
        if self.format not in NUMBER_FORMATS and not _CURRENCY.fullmatch(self.format):
            message = f"{self.format[:40]!r} is no number format."
            hint = "Use integer, decimal, percent, or a currency code such as EUR."
            raise InvalidError("type_invalid", message, hint=hint)

    def _check_dimensions(self) -> None:
        if self.dimensions is None:
            return
        if self.name is not TypeName.VECTOR:
            raise InvalidError("type_invalid", f"A {self.name} column takes no length.")
        if not 1 <= self.dimensions <= limits.VECTOR_DIMENSIONS_MAX:
            message = f"A vector cannot have {self.dimensions} numbers."
            hint = f"Use 1 to {limits.VECTOR_DIMENSIONS_MAX}, as in vector(384)."
            raise InvalidError("type_invalid", message, hint=hint)

    def _check_choices(self) -> None:
        hint = f"Write it as {self.name}(first,second)."
        if not self.choices and not self.free:
            raise InvalidError("choices_empty", f"A {self.name} column needs choices.", hint=hint)
        if any(not label.strip() for label in self.choices):
            raise InvalidError("choices_invalid", "A choice cannot be blank.", hint=hint)
        if len(set(self.choices)) < len(self.choices):
            raise InvalidError("choices_invalid", "A choice stands twice in the list.", hint=hint)
        if len(self.choices) > limits.CHOICES_MAX:
            message = f"{len(self.choices)} choices; the most is {limits.CHOICES_MAX}."
            raise InvalidError("choices_invalid", message)


TEXT = ColumnType(name=TypeName.TEXT)
