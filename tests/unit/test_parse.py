from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everfill.kernel.errors import InvalidError
from everfill.tables.parse import DecimalMark, parse_value
from everfill.tables.type_syntax import parse_type
from everfill.tables.values import JsonValue

_SHA = "0" * 64
_FILE: JsonValue = {"name": "a.png", "mime": "image/png", "size_bytes": 3, "sha256": _SHA}


def _refused(raw: JsonValue, spec: str, decimal: DecimalMark | None = None) -> InvalidError:
    with pytest.raises(InvalidError) as caught:
        parse_value(raw, parse_type(spec), decimal=decimal)
    assert caught.value.code == "value_invalid"
    return caught.value


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        ("12", 12), (" 12 ", 12), ("-3", -3), ("+3", 3), ("\u22125", -5), ("007", 7),
        ("1,234.50", 1234.5), ("1.234,50", 1234.5), ("3,50", 3.5), ("0,125", 0.125),
        ("1,234,567", 1_234_567), ("1.234.567", 1_234_567), ("1 234,5", 1234.5),
        ("1\u202f234", 1234), ("1'234.5", 1234.5), ("12,34,567", 1_234_567),
        ("1.234", 1.234), (".5", 0.5), ("1e3", 1000.0), ("2.5E-3", 0.0025),
        ("€ 12", 12), ("12 €", 12), ("EUR 1.234,50", 1234.5), ("-$5", -5), ("$-5", -5),
        ("US$ 1,234.50", 1234.5), ("12 %", 0.12), ("12,5%", 0.125),
        ("9007199254740993", 9_007_199_254_740_993), (5, 5), (2.5, 2.5),
    ],
)  # fmt: skip
def test_a_number_is_read_as_people_write_it(raw: JsonValue, value: float) -> None:
    parsed = parse_value(raw, parse_type("number"))
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    "raw",
    ["(5)", "5-", "--5", "five", "", " ", "1,2,3", "1.2.3", "1,23,4", "12,3456,789", "NaN", "inf",
     "1e999", "9" * 5000, "0x10", "1_000", "$5 EUR", "12 %%", True, [1], float("inf"),
     10**400, -(10**400), float("nan")],
)  # fmt: skip
def test_what_is_no_number_is_refused(raw: JsonValue) -> None:
    _refused(raw, "number")


def test_a_mark_that_could_be_either_is_never_guessed() -> None:
    assert "1234 or 1.234" in str(_refused("1,234", "number"))
    assert parse_value("1,234", parse_type("number"), decimal=".") == 1234
    assert parse_value("1,234", parse_type("number"), decimal=",") == 1.234
    assert parse_value("1.234", parse_type("number"), decimal=",") == 1234
    _refused("3,50", "number", ".")


def test_a_unit_that_contradicts_the_column_is_refused() -> None:
    assert parse_value("€ 12", parse_type("number(EUR)")) == 12
    assert parse_value("$12", parse_type("number(CAD)")) == 12
    assert parse_value("12", parse_type("number(EUR)")) == 12
    assert parse_value("12 %", parse_type("number(percent)")) == 0.12
    _refused("$12", "number(EUR)")
    _refused("12 %", "number(EUR)")
    _refused("€ 12", "number(percent)")


@pytest.mark.parametrize(
    ("raw", "value"),
    [(True, True), ("TRUE", True), (" yes ", True), ("1", True), (1, True), ("on", True),
     (False, False), ("no", False), ("0", False), (0, False), ("Off", False)],
)  # fmt: skip
def test_booleans(raw: JsonValue, value: bool) -> None:
    assert parse_value(raw, parse_type("boolean")) is value


@pytest.mark.parametrize("raw", ["maybe", "", 2, 1.5, []])
def test_what_is_neither_true_nor_false_is_refused(raw: JsonValue) -> None:
    _refused(raw, "boolean")


@pytest.mark.parametrize(
    ("raw", "value"),
    [("2024-02-29", "2024-02-29"), ("13/02/2024", "2024-02-13"), ("02/13/2024", "2024-02-13"),
     ("March 5, 2024", "2024-03-05"), ("5 mars 2024", "2024-03-05"),
     ("2024-03-01T00:00", "2024-03-01"), ("2024-W10-2", "2024-03-05")],
)  # fmt: skip
def test_a_day_in_any_clear_form_becomes_iso(raw: str, value: str) -> None:
    assert parse_value(raw, parse_type("date")) == value


@pytest.mark.parametrize(
    "raw",
    ["02/03/2024", "2024-02-30", "3/4/26", "today", "March 2024", "2024", "20240301", "", 20240301,
     "2024-03-01 10:00", "2024-W10", "2024-W10T10:00", "2024W10"],
)  # fmt: skip
def test_a_day_that_is_not_clear_is_refused(raw: JsonValue) -> None:
    _refused(raw, "date")


def test_a_moment_keeps_its_offset_and_is_utc_without_one() -> None:
    moment = parse_type("datetime")
    assert parse_value("2024-03-01T10:00:00+02:00", moment) == "2024-03-01T10:00:00+02:00"
    assert parse_value("2024-03-01T10:00:00Z", moment) == "2024-03-01T10:00:00+00:00"
    assert parse_value("2024-03-01 10:00", moment) == "2024-03-01T10:00:00+00:00"
    assert parse_value("5 March 2024 10:30", moment) == "2024-03-05T10:30:00+00:00"
    _refused("10:30", "datetime")


def test_a_label_outside_the_list_is_never_stored() -> None:
    mood = parse_type("choice(positive,neutral,negative)")
    assert parse_value("neutral", mood) == "neutral"
    assert parse_value(" Neutral\n", mood) == "neutral"
    assert "positive, neutral, negative" in str(
        _refused("neutraal", "choice(positive,neutral,negative)")
    )
    for no_label in ("", [], ["neutral"], {"label": "neutral"}):
        _refused(no_label, "choice(positive,neutral)")
    assert parse_value("1", parse_type("choice(1,2)")) == "1"
    assert parse_value(1, parse_type("choice(1,2)")) == "1"


def test_a_free_choice_takes_other_labels_but_not_a_blank_one() -> None:
    free = parse_type("choice(a,*)")
    assert parse_value(" A", free) == "a"
    assert parse_value(" other ", free) == "other"
    for no_label in ("  ", ["x"], {"a": 1}):
        _refused(no_label, "choice(a,*)")


def test_labels_that_differ_in_case_only_are_told_apart() -> None:
    both = parse_type("choice(a,A)")
    assert (parse_value("a", both), parse_value("A", both)) == ("a", "A")
    _refused(" a ", "choice(a,A)")


def test_several_labels_come_as_a_list_or_as_text() -> None:
    tags = parse_type('choices(red,green,"a, b")')
    assert parse_value(["Red", "green", "red"], tags) == ["red", "green"]
    assert parse_value("red; green", tags) == ["red", "green"]
    assert parse_value('["a, b"]', tags) == ["a, b"]
    assert parse_value("a, b", tags) == ["a, b"]
    assert parse_value("", tags) == []
    _refused("red, blue", "choices(red,green)")
    _refused(5, "choices(red,green)")
    _refused(["red", None], "choices(red,*)")
    _refused(["red", ["green"]], "choices(red,*)")


def test_json_is_strict() -> None:
    assert parse_value('{"a": [1, null]}', parse_type("json")) == {"a": [1, None]}
    assert parse_value([1], parse_type("json")) == [1]
    for bad in ("{", "NaN", '{"a": Infinity}', "1e999", "[" * 100_000, ""):
        _refused(bad, "json")


@pytest.mark.parametrize("raw", ["https://example.org/a?b=c", " http://localhost:8080 "])
def test_a_web_address_is_kept(raw: str) -> None:
    assert parse_value(raw, parse_type("url")) == raw.strip()


@pytest.mark.parametrize(
    "raw",
    [
        "example.org",
        "ftp://example.org",
        "http://",
        "http://[::1",
        "https://a b/",
        5,
        "",
        "http://a:99999/",
        "http://a:b/",
        "http://a\x00b/",
        "http://a/\ud800",
    ],
)
def test_what_is_no_web_address_is_refused(raw: JsonValue) -> None:
    _refused(raw, "url")


def test_a_vector_has_its_length_and_finite_floats() -> None:
    assert parse_value([1, 2.5], parse_type("vector(2)")) == [1.0, 2.5]
    assert parse_value("[1, 2]", parse_type("vector(2)")) == [1.0, 2.0]
    for bad in ([1], [1, True], [1, float("nan")], [1, "2"], "1,2", {}, [1, 10**400]):
        _refused(bad, "vector(2)")


def test_a_file_is_whole_and_of_its_kind() -> None:
    assert parse_value(_FILE, parse_type("image")) == _FILE
    assert parse_value(_FILE, parse_type("document")) == _FILE
    _refused(_FILE, "audio")
    _refused({**_FILE, "sha256": "short"}, "image")
    _refused({**_FILE, "size_bytes": -1}, "image")
    _refused({"name": "a"}, "document")
    _refused("a.png", "image")


@pytest.mark.parametrize("unit", [" ", "1", "a", "1,", " 234", "[", "€", "\n", "2024 "])
@pytest.mark.parametrize(
    "spec", ["number", "boolean", "date", "datetime", "choice(a)", "json", "url", "image", "vector"]
)
def test_a_text_over_a_megabyte_is_refused_at_once(spec: str, unit: str) -> None:
    text = unit * (2_000_000 // len(unit)) + "x"  # for ever, where a pattern tries every split
    assert len(_refused(text, spec).message) < 200
    assert parse_value(text, parse_type("text")) == text


def test_null_is_null_in_every_type() -> None:
    for spec in ("text", "number", "choice(a)", "date", "json", "image", "vector(3)"):
        assert parse_value(None, parse_type(spec)) is None


def test_text_stays_as_it_is() -> None:
    for text in ("", " a ", "NULL", "\x00", "\ud800", "007"):
        assert parse_value(text, parse_type("text")) == text
    assert parse_value(5, parse_type("text")) == "5"


@given(st.integers(-(10**15), 10**15), st.sampled_from([".", ","]))
def test_a_number_with_thousands_marks_is_the_number(number: int, decimal: DecimalMark) -> None:
    text = f"{number:,}" if decimal == "." else f"{number:,}".replace(",", ".")
    assert parse_value(text, parse_type("number"), decimal=decimal) == number


@given(st.text(max_size=30), st.sampled_from(["number", "date", "datetime", "boolean", "url"]))
def test_any_text_is_a_value_or_refused(text: str, spec: str) -> None:
    with suppress(InvalidError):  # and nothing else
        parse_value(text, parse_type(spec))
