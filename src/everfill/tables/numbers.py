"""Numbers as people write them: thousands marks, decimal commas, currency and percent signs.

A text is read under a *decimal convention*, "." or ",": the other mark then groups thousands. Some
texts can be read under one convention only (`3,50`, `1.234,50`, `1,234,567`); some under both, with
different outcomes (`1,234`). Who has a whole column decides from all of it; who has one value gets
an error rather than a guess.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

__all__ = ["CURRENCY_OF_SIGN", "DecimalMark", "NumberText", "read_number", "same_currency"]

DecimalMark: TypeAlias = Literal[".", ","]
"""The mark before the fraction."""

_DIGITS_MAX: Final = 300
_SPACES: Final = " \u00a0\u2009\u202f"

CURRENCY_OF_SIGN: Final = {
    "€": "EUR", "£": "GBP", "₹": "INR", "₩": "KRW", "₽": "RUB", "₺": "TRY", "₴": "UAH",
    "₫": "VND", "₪": "ILS", "₱": "PHP", "₦": "NGN", "฿": "THB", "zł": "PLN", "Kč": "CZK",
    "US$": "USD", "CA$": "CAD", "AU$": "AUD", "NZ$": "NZD", "HK$": "HKD", "R$": "BRL",
}  # fmt: skip
"""Signs that belong to one currency only; `$`, `¥` and `kr` belong to several."""

_SHARED_SIGNS: Final = {
    "$": frozenset({"USD", "CAD", "AUD", "NZD", "HKD", "SGD", "MXN", "ARS", "CLP", "COP", "TWD"}),
    "¥": frozenset({"JPY", "CNY"}),
    "￥": frozenset({"JPY", "CNY"}),
    "kr": frozenset({"SEK", "NOK", "DKK", "ISK"}),
}
_CODES: Final = frozenset(
    [
        "AED",
        "ARS",
        "AUD",
        "BDT",
        "BGN",
        "BRL",
        "CAD",
        "CHF",
        "CLP",
        "CNY",
        "COP",
        "CZK",
        "DKK",
        "DZD",
        "EGP",
        "EUR",
        "GBP",
        "GEL",
        "GHS",
        "HKD",
        "HUF",
        "IDR",
        "ILS",
        "INR",
        "IRR",
        "ISK",
        "JOD",
        "JPY",
        "KES",
        "KRW",
        "KWD",
        "KZT",
        "LKR",
        "MAD",
        "MXN",
        "MYR",
        "NGN",
        "NOK",
        "NZD",
        "OMR",
        "PEN",
        "PHP",
        "PKR",
        "PLN",
        "QAR",
        "RON",
        "RSD",
        "RUB",
        "SAR",
        "SEK",
        "SGD",
        "THB",
        "TND",
        "TRY",
        "TWD",
        "UAH",
        "USD",
        "UYU",
        "UZS",
        "VND",
        "XAF",
        "XOF",
        "ZAR",
    ]
)
_UNITS: Final = sorted([*CURRENCY_OF_SIGN, *_SHARED_SIGNS, *_CODES], key=len, reverse=True)


def _pattern(decimal: DecimalMark) -> re.Pattern[str]:
    point, comma = re.escape(decimal), "," if decimal == "." else re.escape(".")
    unit = "|".join(re.escape(unit) for unit in _UNITS)
    grouped = (
        rf"[1-9][0-9]{{0,2}}(?P<mark>[{comma}{_SPACES}'\u2019])[0-9]{{3}}(?:(?P=mark)[0-9]{{3}})*"
    )
    lakh = r"[1-9][0-9]?(?:,[0-9]{2})+,[0-9]{3}" if decimal == "." else r"(?!)"
    space = rf"[{_SPACES}]*+"  # gives nothing back: a run of spaces costs no more than its length
    return re.compile(
        rf"\s*+(?P<sign>[-+\u2212]?){space}(?P<before>{unit})?{space}(?P<inner>[-\u2212]?)"
        rf"(?:(?P<whole>{grouped}|{lakh}|[0-9]+)(?:{point}(?P<part>[0-9]+))?|{point}(?P<only>[0-9]+))"
        rf"(?:[eE](?P<power>[-+]?[0-9]{{1,3}}))?"
        rf"(?:{space}(?P<after>%|{unit}))?\s*"
    )


_PATTERNS: Final[dict[DecimalMark, re.Pattern[str]]] = {".": _pattern("."), ",": _pattern(",")}


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberText:
    """A text read as a number.

    Attributes:
        value: The number; `12 %` is 0.12. Whole texts give an int, all others a float.
        unit: The currency sign or code, or `%`.
        mark: What groups the thousands (`,` `.` `'` or a space), or None.
        whole: The digits before the fraction, without marks.
        part: The digits of the fraction.
        sign: `+`, `-` or nothing.
        power: The exponent as written (`-05`), or None.
    """

    value: int | float
    unit: str | None
    mark: str | None
    whole: str
    part: str
    sign: str
    power: str | None


def read_number(text: str, decimal: DecimalMark) -> NumberText | None:
    """Read a text under one decimal convention; None where it is no finite number under it."""
    match = _PATTERNS[decimal].fullmatch(text)
    if match is None or (match["before"] and match["after"]) or (match["sign"] and match["inner"]):
        return None
    written = match["whole"] or ""
    whole = "".join(digit for digit in written if digit.isdigit()) if written else "0"
    part = match["part"] or match["only"] or ""
    sign = (match["sign"] or match["inner"]).replace("\u2212", "-")
    unit = match["before"] or match["after"]
    value = _value(sign, whole, part, match["power"], percent=unit == "%")
    if value is None:
        return None
    mark = next((char for char in written if not char.isdigit()), None)
    return NumberText(
        value=value, unit=unit, mark=mark, whole=whole, part=part, sign=sign, power=match["power"]
    )


def _value(
    sign: str, whole: str, part: str, power: str | None, *, percent: bool
) -> int | float | None:
    if len(whole) > _DIGITS_MAX:
        return None
    if not part and power is None and not percent:
        return int(f"{sign}{whole}")
    shift = int(power or 0) - (2 if percent else 0)
    value = float(f"{sign}{whole}.{part or 0}e{shift}")
    return value if math.isfinite(value) else None


def same_currency(unit: str, code: str) -> bool:
    """Whether a sign or code as written may stand for this currency."""
    return unit == code or CURRENCY_OF_SIGN.get(unit) == code or code in _SHARED_SIGNS.get(unit, ())
