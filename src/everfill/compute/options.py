"""How a kind checks what a column's author gave it: options and the output type.

Each function returns the value in its own type, or refuses with what is wrong and what would be
right. A kind calls them in `check`, when a column is made, and again when it computes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from everfill.compute.protocol import KindSpec
from everfill.kernel.errors import InvalidError
from everfill.tables.types import ColumnType
from everfill.tables.values import JsonValue

__all__ = [
    "check_names",
    "check_output_type",
    "choice_option",
    "integer_option",
    "number_option",
    "text_option",
]

Options = Mapping[str, JsonValue]


def check_output_type(spec: KindSpec, output_type: ColumnType) -> None:
    """Refuse a type that the kind cannot store.

    Raises:
        InvalidError: `type_unsupported`.
    """
    if output_type.name not in spec.output_types:
        known = ", ".join(sorted(spec.output_types))
        message = f"`{spec.name}` cannot fill a {output_type.name} column."
        raise InvalidError("type_unsupported", message, hint=f"It fills: {known}.")


def check_names(options: Options, known: Collection[str]) -> None:
    """Refuse options that the kind does not have.

    Raises:
        InvalidError: `option_unknown`.
    """
    if extra := sorted(set(options) - set(known)):
        hint = f"Known: {', '.join(sorted(known))}." if known else "This kind takes no options."
        raise InvalidError("option_unknown", f"No such option: {', '.join(extra)}.", hint=hint)


def text_option(options: Options, name: str) -> str | None:
    """A text that is not blank, or None where it is not given."""
    value = options.get(name)
    if value is None or (isinstance(value, str) and value.strip()):
        return value
    raise _invalid(name, value, "a text")


def choice_option(options: Options, name: str, allowed: Collection[str], default: str) -> str:
    """One of the allowed words."""
    value = options.get(name, default)
    if isinstance(value, str) and value in allowed:
        return value
    raise _invalid(name, value, f"one of {', '.join(allowed)}")


def integer_option(
    options: Options, name: str, *, low: int, high: int, default: int | None = None
) -> int | None:
    """A whole number within its bounds; text of one counts."""
    value = number_option(options, name, low=low, high=high, default=default)
    if value is None or value == int(value):
        return None if value is None else int(value)
    raise _invalid(name, options.get(name), f"a whole number from {low} to {high}")


def number_option(
    options: Options, name: str, *, low: float, high: float, default: float | None = None
) -> float | None:
    """A number within its bounds; text of one counts, as the command line has only text."""
    value = options.get(name, default)
    if value is None:
        return None
    number = _number(value)
    if number is None or not low <= number <= high:
        raise _invalid(name, value, f"a number from {low:g} to {high:g}")
    return number


def _number(value: JsonValue) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except ValueError:
        return None


def _invalid(name: str, value: JsonValue, wanted: str) -> InvalidError:
    return InvalidError("option_invalid", f"Option {name} is {value!r}; it must be {wanted}.")
