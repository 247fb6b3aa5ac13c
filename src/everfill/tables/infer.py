"""The type of a column from its values, conservatively: a type is inferred only if no text is lost.

Text columns (CSV) become numbers, dates, moments, booleans or web addresses when *every* value
reads as one and would read the same written back: leading zeros and plus signs, identifiers of more
than 15 digits, and mixed units stay text. Numbers are read under one decimal convention for the
whole column; where the column leaves it open, the file's other columns and its delimiter decide,
and a note says so. Values that already have a type (JSON, spreadsheets) only need a common one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Final, TypeAlias

from everfill.tables.numbers import CURRENCY_OF_SIGN, DecimalMark, NumberText, read_number
from everfill.tables.types import TEXT, ColumnType, TypeName
from everfill.tables.values import JsonValue

__all__ = ["Inferred", "Reader", "TextProfile", "is_web_address", "iso_date", "iso_datetime"]

Reader: TypeAlias = Callable[[str], JsonValue]
"""Gives the value of a text, or None where the text does not fit the inferred type."""

_DIGITS_MAX: Final = 15  # what a double holds exactly
_PLAIN: Final = re.compile(r"-?(?:[1-9][0-9]{0,14}|0)")
_POINT: Final = re.compile(r"(?!-0\.0+\Z)-?(?:[1-9][0-9]{0,8}|0)\.(?:[0-9]{1,2}|[0-9]{4,6})")
_DATE: Final = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}")
_DATETIME: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}"
    r"(?::[0-9]{2}(?:\.[0-9]{1,6})?)?(?:Z|[+-][0-9]{2}:?[0-9]{2})?"
)
_OFFSET: Final = re.compile(r"(?:Z|[+-][0-9]{2}:?[0-9]{2})\Z")
_URL: Final = re.compile(r"https?://[^\s/?#]+\S*", re.IGNORECASE)
_BOOLEANS: Final = {"true": True, "false": False}
_SHARED_SIGNS: Final = {"$": "USD"}
_MARKS: Final[tuple[DecimalMark, ...]] = (".", ",")


@dataclass(frozen=True, slots=True, kw_only=True)
class Inferred:
    """What a column is taken for: its type, how to read it, and what to tell the person."""

    type: ColumnType
    read: Reader | None
    note: str | None = None


def iso_date(text: str) -> str | None:
    """An ISO day, as it is."""
    if not _DATE.fullmatch(text):
        return None
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        return None


def iso_datetime(text: str) -> str | None:
    """An ISO moment with its offset; one without is taken as UTC."""
    if not _DATETIME.fullmatch(text):
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).isoformat()


def is_web_address(text: str) -> str | None:
    """A web address, as it is."""
    return text if _URL.fullmatch(text) else None


def _boolean(text: str) -> bool | None:
    return _BOOLEANS.get(text.lower())


_WORDS: Final[tuple[tuple[TypeName, Reader], ...]] = (
    (TypeName.BOOLEAN, _boolean),
    (TypeName.DATE, iso_date),
    (TypeName.DATETIME, iso_datetime),
    (TypeName.URL, is_web_address),
)


@dataclass(slots=True)
class TextProfile:
    """What the texts of one column could be; every batch can only narrow it."""

    seen: bool = False
    words: list[tuple[TypeName, Reader]] = field(default_factory=lambda: list(_WORDS))
    marks: set[DecimalMark] = field(default_factory=lambda: {".", ","})
    units: set[str | None] = field(default_factory=set[str | None])
    open_comma: bool = False  # a value like 1,234
    open_point: bool = False  # a value like 1.234
    loose_groups: bool = False  # groups marked as phone numbers and addresses are, too
    fraction: bool = False
    zoneless: bool = False  # a moment without an offset

    @property
    def is_open(self) -> bool:
        """Whether more values can still change the outcome."""
        return bool(self.words or self.marks)

    @property
    def decimal(self) -> DecimalMark | None:
        """The decimal mark that the column itself proves."""
        return next(iter(self.marks)) if len(self.marks) == 1 and self._numeric() else None

    def observe(self, texts: Iterable[str]) -> None:
        """Take note of texts that are neither absent nor empty."""
        distinct = set(texts)
        if not distinct or not self.is_open:
            return
        self.seen = True
        self.words = [
            (name, read)
            for name, read in self.words
            if all(read(text) is not None for text in distinct)
        ]
        if self.words and self.words[0][0] is TypeName.DATETIME:
            self.zoneless = self.zoneless or not all(map(_OFFSET.search, distinct))
        if self.marks and all(map(_PLAIN.fullmatch, distinct)) and "-0" not in distinct:
            self.units.add(None)
        elif self.marks:
            plain = {text for text in distinct if _POINT.fullmatch(text)}
            if plain:  # a shape so common that it is worth a short cut
                self.units.add(None)
                self.marks &= {"."}
                self.fraction = True
            self._observe_numbers(distinct - plain)

    def decide(self, *, fallback: DecimalMark | None, fallback_reason: str) -> Inferred:
        """The column's type.

        Args:
            fallback: The decimal mark to use where the column does not prove one.
            fallback_reason: Why that one; it goes into the note.
        """
        if not self.seen:
            return Inferred(type=TEXT, read=None)
        if self._numeric():
            return self._number(fallback, fallback_reason)
        if not self.words:
            return Inferred(type=TEXT, read=None)
        name, read = self.words[0]
        note = "moments without an offset are taken as UTC" if self.zoneless else None
        return Inferred(type=ColumnType(name=name), read=read, note=note)

    def _observe_numbers(self, texts: set[str]) -> None:
        for text in texts:
            readings: list[tuple[DecimalMark, NumberText]] = [
                (mark, reading)
                for mark in _MARKS
                if mark in self.marks
                and (reading := read_number(text, mark)) is not None
                and keeps_text(reading)
            ]
            self.marks &= {mark for mark, _ in readings}
            if not readings:
                return
            self._take(text, readings)

    def _take(self, text: str, readings: list[tuple[DecimalMark, NumberText]]) -> None:
        first = readings[0][1]
        self.units.add(first.unit)
        values = {reading.value for _, reading in readings}
        self.open_comma |= len(values) > 1 and "," in text
        self.open_point |= len(values) > 1 and "." in text
        for _, reading in readings:
            self.fraction |= bool(reading.part) and len(readings) == 1
            self.loose_groups |= reading.mark == " " or (reading.mark == "." and len(readings) == 1)

    def _numeric(self) -> bool:
        if not self.seen or not self.marks or len(self.units) != 1:
            return False
        if self.open_comma and self.open_point and len(self.marks) > 1:
            return False
        return not self.loose_groups or self.fraction or self.units != {None}

    def _number(self, fallback: DecimalMark | None, reason: str) -> Inferred:
        decimal = next(iter(self.marks)) if len(self.marks) == 1 else None
        note = None
        if decimal is None and (self.open_comma or self.open_point):
            decimal = fallback or ("." if self.open_point else None)
            if decimal is None:
                note = "its commas could be decimal or thousands marks, so it is kept as text"
                return Inferred(type=TEXT, read=None, note=note)
            note = f"{decimal!r} is taken as its decimal mark: {reason}"
        elif decimal == ",":
            note = "its numbers have decimal commas"
        (unit,) = self.units
        number_format = _format(unit)
        if unit is not None and number_format is None:
            note = f"{unit!r} is the sign of several currencies, so it is kept as text"
            return Inferred(type=TEXT, read=None, note=note)
        if unit in _SHARED_SIGNS:
            note = f"{unit!r} is taken as {number_format}" + (f"; {note}" if note else "")
        return Inferred(
            type=ColumnType(name=TypeName.NUMBER, format=number_format),
            read=number_reader(decimal or ".", unit),
            note=note,
        )


def keeps_text(reading: NumberText) -> bool:
    """Whether a number says all that its text says; an identifier's digits would not survive."""
    if reading.sign == "+" or (reading.sign and not reading.value):
        return False
    if reading.power is not None and not reading.power.startswith(("+", "-")):
        return False  # 12E4 is a part number, 1.2e-05 is not
    leading_zero = len(reading.whole) > 1 and reading.whole.startswith("0")
    return not leading_zero and len((reading.whole + reading.part).lstrip("0")) <= _DIGITS_MAX


def number_reader(decimal: DecimalMark, unit: str | None) -> Reader:
    """A reader of the numbers of one column."""

    def read(text: str) -> JsonValue:
        if _PLAIN.fullmatch(text) and unit is None and text != "-0":
            return int(text)
        if decimal == "." and unit is None and _POINT.fullmatch(text):
            return float(text)
        reading = read_number(text, decimal)
        if reading is None or reading.unit != unit or not keeps_text(reading):
            return None
        return reading.value

    return read


def _format(unit: str | None) -> str | None:
    if unit is None:
        return None
    if unit == "%":
        return "percent"
    code = CURRENCY_OF_SIGN.get(unit) or _SHARED_SIGNS.get(unit)
    return code or (unit if re.fullmatch("[A-Z]{3}", unit) else None)
