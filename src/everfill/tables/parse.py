"""From text (or JSON) to a value of a column's type. Strict: what is not clear is refused.

Numbers may carry thousands marks, a currency sign or a percent sign. Where a mark could be either a
decimal or a thousands one (`1,234`), the caller says which the column uses, or it is refused.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from typing import Final, Literal, TypeAlias, cast
from urllib.parse import urlsplit

from everfill.kernel.errors import InvalidError
from everfill.tables.types import FILE_TYPES, ColumnType, TypeName
from everfill.tables.values import JsonValue

__all__ = ["DecimalMark", "parse_number", "parse_value"]

DecimalMark: TypeAlias = Literal[".", ","]

_SPACES: Final = re.compile(r"[\s\u00a0\u202f\u2009'\u2019]+")
_CURRENCY: Final = re.compile(r"^(?:[A-Z]{3}|[$€£¥₹₽₩₺₴฿])\s*|\s*(?:[A-Z]{3}|[$€£¥₹₽₩₺₴฿])$")
_SIGNED: Final = re.compile(r"([+\-\u2212]?)\s*(.*)", re.DOTALL)
_DIGITS: Final = re.compile(r"\d+")
_SCIENTIFIC: Final = re.compile(r"[+\-]?\d+(?:\.\d+)?[eE][+\-]?\d{1,3}")
_GROUPED: Final = {
    ".": re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+"),
    ",": re.compile(r"\d{1,3}(?:\.\d{3})+(?:,\d+)?|\d+(?:,\d+)?|,\d+"),
}
_BOOLEANS: Final[Mapping[str, bool]] = {
    **dict.fromkeys(("true", "yes", "y", "1", "on"), True),
    **dict.fromkeys(("false", "no", "n", "0", "off"), False),
}
_FILE_KEYS: Final = frozenset({"name", "mime", "size_bytes", "sha256"})
_SHOWN_CHARS: Final = 60


def parse_value(
    raw: JsonValue,
    type: ColumnType,  # noqa: A002 - the field's standard term
    *,
    decimal: DecimalMark | None = None,
) -> JsonValue:
    """The value of a column's type that a raw one stands for.

    Args:
        raw: Text as a person or a model wrote it, or JSON that may already be right.
        type: The column's type.
        decimal: The decimal mark of the column's numbers, where it is known.

    Returns:
        Text, int or float (finite), bool, ISO 8601 text for dates and datetimes (UTC where no
        offset was given), a label or a list of labels, JSON, a list of floats, or a file.

    Raises:
        InvalidError: `value_invalid`, with what is wrong.
    """
    if raw is None:
        return None
    if type.name is TypeName.NUMBER:
        return _number(raw, decimal)
    return _PARSERS[type.name](raw, type)


def parse_number(text: str, decimal: DecimalMark | None = None) -> int | float | None:
    """The number that a text says, or None where it says none or could say two."""
    clean = text.strip()
    if _SCIENTIFIC.fullmatch(clean):
        number = float(clean)
        return number if math.isfinite(number) else None
    percent = clean.endswith("%")
    clean = _CURRENCY.sub("", clean.removesuffix("%").strip()).strip()
    signed = _SIGNED.fullmatch(clean)
    assert signed, "the pattern matches any text"
    digits = _SPACES.sub("", _CURRENCY.sub("", signed[2]).strip())
    plain = _plain_digits(digits, decimal)
    if plain is None:
        return None
    return _to_number(plain, negative=signed[1] in {"-", "\u2212"}, percent=percent)


def _plain_digits(digits: str, decimal: DecimalMark | None) -> str | None:
    """The digits with `.` as the decimal mark and no thousands marks; None where unclear."""
    if _DIGITS.fullmatch(digits):
        return digits
    fits = [mark for mark in (".", ",") if _GROUPED[mark].fullmatch(digits)]
    if decimal is not None:
        fits = [mark for mark in fits if mark == decimal]
    readings = {_normal(digits, mark) for mark in fits}
    return readings.pop() if len(readings) == 1 else None


def _normal(digits: str, mark: str) -> str:
    thousands = "," if mark == "." else "."
    return digits.replace(thousands, "").replace(mark, ".")


def _to_number(plain: str, *, negative: bool, percent: bool) -> int | float | None:
    sign = -1 if negative else 1
    if "." not in plain and not percent:
        return sign * int(plain)
    number = sign * float(plain)
    if percent:
        number = round(number / 100, 12)
    return number if math.isfinite(number) else None


def _number(raw: JsonValue, decimal: DecimalMark | None) -> int | float:
    if isinstance(raw, (int, float)) and not isinstance(raw, bool):
        if math.isfinite(raw):
            return raw
    elif isinstance(raw, str):
        number = parse_number(raw, decimal)
        if number is not None:
            return number
        if parse_number(raw, ".") is not None and parse_number(raw, ",") is not None:
            hint = "Write it without thousands marks."
            raise _invalid(raw, "could be two numbers: its mark may be decimal or thousands", hint)
    raise _invalid(raw, "is no number")


def _text(raw: JsonValue, _: ColumnType) -> str:
    return raw if isinstance(raw, str) else json.dumps(raw, ensure_ascii=False)


def _boolean(raw: JsonValue, _: ColumnType) -> bool:
    if isinstance(raw, bool):
        return raw
    word = str(raw).strip().lower() if isinstance(raw, (str, int)) else ""
    if word not in _BOOLEANS:
        raise _invalid(raw, "is neither true nor false")
    return _BOOLEANS[word]


def _date(raw: JsonValue, _: ColumnType) -> str:
    text = raw.strip() if isinstance(raw, str) else ""
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(text).date().isoformat()
    except ValueError:
        return _unambiguous(raw, text).date().isoformat()


def _datetime(raw: JsonValue, _: ColumnType) -> str:
    text = raw.strip() if isinstance(raw, str) else ""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = _unambiguous(raw, text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).isoformat()


def _unambiguous(raw: JsonValue, text: str) -> datetime:
    """A date in words or figures that can be read in just one way."""
    import dateparser  # noqa: PLC0415 - half a second, and most dates are ISO

    readings = (
        {
            dateparser.parse(text, settings={"DATE_ORDER": order, "STRICT_PARSING": True})
            for order in ("DMY", "MDY")
        }
        if text and any(character.isdigit() for character in text)
        else {None}
    )
    reading = readings.pop()
    if readings or reading is None:
        raise _invalid(raw, "is no clear date", "Write it as 2026-11-30.")
    return reading


def _choice(raw: JsonValue, type_: ColumnType) -> str:
    if not isinstance(raw, str):
        raw = _text(raw, type_)
    if raw in type_.choices:
        return raw
    folded = raw.strip().casefold()
    for label in type_.choices:
        if label.strip().casefold() == folded:
            return label
    if type_.free and folded:
        return raw.strip()
    raise _invalid(raw, "is not among the choices", f"They are: {', '.join(type_.choices)}.")


def _choices(raw: JsonValue, type_: ColumnType) -> list[JsonValue]:
    if isinstance(raw, str):
        raw = _list_of_text(raw)
    if not isinstance(raw, list):
        raise _invalid(raw, "is no list of labels")
    return list(dict.fromkeys(_choice(item, type_) for item in raw))


def _list_of_text(text: str) -> list[JsonValue]:
    """Labels from a JSON list, or from text with commas or semicolons."""
    if text.lstrip().startswith("["):
        try:
            parsed: JsonValue = json.loads(text)
        except ValueError:
            parsed = None
        if isinstance(parsed, list):
            return parsed
    separator = ";" if ";" in text else ","
    return [part.strip() for part in text.split(separator) if part.strip()]


def _json(raw: JsonValue, _: ColumnType) -> JsonValue:
    if not isinstance(raw, str):
        return raw
    try:
        return cast("JsonValue", json.loads(raw))
    except ValueError as error:
        raise _invalid(raw, f"is no JSON ({error})") from None


def _url(raw: JsonValue, _: ColumnType) -> str:
    text = raw.strip() if isinstance(raw, str) else ""
    try:
        parts = urlsplit(text)
        host = parts.hostname
    except ValueError:
        host = None
        parts = urlsplit("")
    if parts.scheme not in {"http", "https"} or not host or any(map(str.isspace, text)):
        raise _invalid(raw, "is no web address", "Write it whole, as https://example.org/page.")
    return text


def _vector(raw: JsonValue, type_: ColumnType) -> list[JsonValue]:
    if isinstance(raw, str):
        raw = _json(raw, type_)
    numbers: list[JsonValue] = []
    for item in raw if isinstance(raw, list) else [None]:
        if isinstance(item, bool) or not isinstance(item, (int, float)) or not math.isfinite(item):
            raise _invalid(raw, "is no list of numbers")
        numbers.append(float(item))
    if type_.dimensions is not None and len(numbers) != type_.dimensions:
        raise _invalid(raw, f"has {len(numbers)} numbers, not {type_.dimensions}")
    return numbers


def _file(raw: JsonValue, _: ColumnType) -> JsonValue:
    if isinstance(raw, dict) and raw.keys() >= _FILE_KEYS:
        return raw
    raise _invalid(raw, "is no file", "Import a folder of files, or upload the file.")


def _invalid(raw: JsonValue, problem: str, hint: str | None = None) -> InvalidError:
    shown = raw if isinstance(raw, str) else json.dumps(raw, ensure_ascii=False)
    if len(shown) > _SHOWN_CHARS:
        shown = f"{shown[:_SHOWN_CHARS]}…"
    return InvalidError("value_invalid", f"{shown!r} {problem}.", hint=hint)


_PARSERS: Final[Mapping[TypeName, Callable[[JsonValue, ColumnType], JsonValue]]] = {
    TypeName.TEXT: _text,
    TypeName.BOOLEAN: _boolean,
    TypeName.DATE: _date,
    TypeName.DATETIME: _datetime,
    TypeName.CHOICE: _choice,
    TypeName.CHOICES: _choices,
    TypeName.JSON: _json,
    TypeName.URL: _url,
    TypeName.VECTOR: _vector,
    **dict.fromkeys(FILE_TYPES, _file),
}
