"""From text (or JSON) to a value of a column's type. Strict: what is not clear is refused.

Numbers may carry thousands marks, a currency sign or a percent sign. Where a mark could be either a
decimal or a thousands one (`1,234`), the caller says which the column uses, or it is refused.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, time
from typing import Final, NoReturn, cast
from urllib.parse import urlsplit

from everfill.kernel.errors import InvalidError
from everfill.tables.numbers import DecimalMark, NumberText, read_number, same_currency
from everfill.tables.types import FILE_TYPES, ColumnType, TypeName
from everfill.tables.values import JsonValue

__all__ = ["DecimalMark", "parse_json", "parse_value"]

_BOOLEANS: Final[Mapping[str, bool]] = {
    **dict.fromkeys(("true", "yes", "y", "1", "on"), True),
    **dict.fromkeys(("false", "no", "n", "0", "off"), False),
}
_FILE_KEYS: Final = frozenset({"name", "mime", "size_bytes", "sha256"})
_DIGITS_MAX: Final = 4_000
"""Of a whole number in JSON; Python itself refuses a little more."""
_SHOWN_CHARS: Final = 60
_LABELS_SHOWN: Final = 20
_DATE_CHARS_MAX: Final = 60
_YEAR: Final = re.compile(r"(?<![0-9])[0-9]{4}(?![0-9])")
_WEEK: Final = re.compile("[0-9]{4}-?W[0-9]{2}(?!-?[0-9])")
_NOT_IN_URL: Final = re.compile(r"[\s\x00-\x1f\x7f\ud800-\udfff]")
_SHA256: Final = re.compile("[0-9a-f]{64}")


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
        return _number(raw, type, decimal)
    return _PARSERS[type.name](raw, type)


def _number(raw: JsonValue, type_: ColumnType, decimal: DecimalMark | None) -> int | float:
    if _is_finite(raw):
        return cast("int | float", raw)
    if not isinstance(raw, str):
        raise _invalid(raw, "is no number")
    reading = _reading(raw, decimal)
    unit = reading.unit
    if unit and not _unit_fits(unit, type_.format):
        raise _invalid(raw, f"is not in {type_.format}", "Convert it, or give the column its unit.")
    return reading.value


def _is_finite(raw: JsonValue) -> bool:
    """Whether JSON is a number within the range of a double."""
    if isinstance(raw, bool) or not isinstance(raw, (int, float)):
        return False
    return abs(raw) <= sys.float_info.max


def _reading(raw: str, decimal: DecimalMark | None) -> NumberText:
    """The one way to read a number; a lone point without a comma is a decimal point."""
    if decimal is not None:
        reading = read_number(raw, decimal)
    else:
        point, comma = read_number(raw, "."), read_number(raw, ",")
        if point and comma and point.value != comma.value and "," in raw:
            hint = f"Write it without thousands marks: {point.value} or {comma.value}."
            raise _invalid(raw, "could be two numbers: its comma may be decimal or not", hint)
        reading = point or comma
    if reading is None:
        raise _invalid(raw, "is no number", "Write digits, as in -1234.5.")
    return reading


def _unit_fits(unit: str, number_format: str | None) -> bool:
    if number_format is None or number_format in {"integer", "decimal"}:
        return True
    if "%" in (unit, number_format) or number_format == "percent":
        return unit == "%" and number_format == "percent"
    return same_currency(unit, number_format)


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
    moment = _moment(raw)
    if moment.time() != time():
        raise _invalid(raw, "is a moment, not a day", "Make the column a datetime.")
    return moment.date().isoformat()


def _datetime(raw: JsonValue, _: ColumnType) -> str:
    moment = _moment(raw)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).isoformat()


def _moment(raw: JsonValue) -> datetime:
    """The moment that an ISO text, or one in words or figures with one reading, names."""
    text = raw.strip() if isinstance(raw, str) else ""
    if _WEEK.match(text):
        raise _invalid(raw, "is a week, not a day", "Write its day, as 2026-11-30.")
    if not text.isdigit():
        try:
            return datetime.fromisoformat(text)
        except ValueError:
            pass  # not ISO: perhaps another clear form
    readings = _readings(text) if _may_be_date(text) else set[datetime | None]()
    reading = readings.pop() if len(readings) == 1 else None
    if reading is None:
        raise _invalid(raw, "is no clear date", "Write it as 2026-11-30.")
    return reading


def _may_be_date(text: str) -> bool:
    """Whether a text is short and names a year in full: `3/4/26` could mean anything."""
    return len(text) <= _DATE_CHARS_MAX and bool(_YEAR.search(text)) and not text.isdigit()


def _readings(text: str) -> set[datetime | None]:
    import dateparser  # noqa: PLC0415 - half a second, and most dates are ISO

    found: set[datetime | None] = set()
    for order in ("DMY", "MDY"):
        settings = {"DATE_ORDER": order, "STRICT_PARSING": True, "PARSERS": ["absolute-time"]}
        found.add(dateparser.parse(text, settings=settings))  # pyright: ignore[reportArgumentType] - a TypedDict that the package does not export
    return found


def _choice(raw: JsonValue, type_: ColumnType) -> str:
    if raw is None or isinstance(raw, (list, dict)):
        raise _invalid(raw, "is no label")
    raw = _text(raw, type_)
    if raw in type_.choices:
        return raw
    folded = raw.strip().casefold()
    close = [label for label in type_.choices if label.strip().casefold() == folded]
    if len(close) == 1:
        return close[0]
    if type_.free and folded:
        return raw.strip()
    if not type_.choices:
        raise _invalid(raw, "is no label")
    raise _invalid(raw, "is not among the choices", f"They are: {_listed(type_.choices)}.")


def _listed(labels: tuple[str, ...]) -> str:
    more = f" and {len(labels) - _LABELS_SHOWN} more" if len(labels) > _LABELS_SHOWN else ""
    return ", ".join(labels[:_LABELS_SHOWN]) + more


def _choices(raw: JsonValue, type_: ColumnType) -> list[JsonValue]:
    if isinstance(raw, str):
        raw = [raw] if raw in type_.choices else _list_of_text(raw)
    if not isinstance(raw, list):
        raise _invalid(raw, "is no list of labels")
    return list(dict.fromkeys(_choice(item, type_) for item in raw))


def _list_of_text(text: str) -> list[JsonValue]:
    """Labels from a JSON list, or from text with commas or semicolons."""
    if text.lstrip().startswith("["):
        parsed = _parsed(text)
        if isinstance(parsed, list):
            return parsed
    separator = ";" if ";" in text else ","
    return [part.strip() for part in text.split(separator) if part.strip()]


def _json(raw: JsonValue, _: ColumnType) -> JsonValue:
    return _parsed(raw) if isinstance(raw, str) else raw


def parse_json(text: str) -> JsonValue:
    """The value of a JSON text, strictly: NaN and numbers beyond a double are none.

    Raises:
        ValueError: With what is wrong.
    """

    def refuse(word: str) -> NoReturn:
        message = f"{word} is not JSON"
        raise ValueError(message)

    try:
        return cast(
            "JsonValue",
            json.loads(text, parse_constant=refuse, parse_float=_finite, parse_int=_whole),
        )
    except RecursionError:
        message = "nested too deep"
        raise ValueError(message) from None


def _parsed(text: str) -> JsonValue:
    try:
        return parse_json(text)
    except ValueError as error:
        raise _invalid(text, f"is no JSON ({error})") from None


def _whole(text: str) -> int:
    if len(text) > _DIGITS_MAX:
        message = f"a number of {len(text):,} digits"
        raise ValueError(message)
    return int(text)


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        message = f"{text[:20]} is too large"
        raise ValueError(message)
    return number


def _url(raw: JsonValue, _: ColumnType) -> str:
    text = raw.strip() if isinstance(raw, str) else ""
    try:
        parts = urlsplit(text)
        whole = bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port or an address in brackets that is none
        parts, whole = urlsplit(""), False
    if parts.scheme not in {"http", "https"} or not whole or _NOT_IN_URL.search(text):
        raise _invalid(raw, "is no web address", "Write it whole, as https://example.org/page.")
    return text


def _vector(raw: JsonValue, type_: ColumnType) -> list[JsonValue]:
    if isinstance(raw, str):
        raw = _json(raw, type_)
    numbers: list[JsonValue] = []
    for item in raw if isinstance(raw, list) else [None]:
        if not _is_finite(item):
            raise _invalid(raw, "is no list of numbers")
        numbers.append(float(cast("float", item)))
    if type_.dimensions is not None and len(numbers) != type_.dimensions:
        raise _invalid(raw, f"has {len(numbers)} numbers, not {type_.dimensions}")
    return numbers


def _file(raw: JsonValue, type_: ColumnType) -> JsonValue:
    if isinstance(raw, str) and raw.lstrip().startswith("{"):
        raw = _parsed(raw)
    if not isinstance(raw, dict) or raw.keys() != _FILE_KEYS:
        raise _invalid(raw, "is no file", "Import a folder of files, or upload the file.")
    name, mime, size, digest = (raw[key] for key in ("name", "mime", "size_bytes", "sha256"))
    if not isinstance(name, str) or not isinstance(mime, str) or "/" not in mime:
        raise _invalid(raw, "is a file without a name or a MIME type")
    if isinstance(size, bool) or not isinstance(size, int) or size < 0:
        raise _invalid(raw, "is a file without a size")
    if not isinstance(digest, str) or not _SHA256.fullmatch(digest):
        raise _invalid(raw, "is a file without a sha256")
    if type_.name is not TypeName.DOCUMENT and not mime.startswith(f"{type_.name}/"):
        raise _invalid(raw, f"is of type {mime}, not {type_.name}")
    return raw


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
