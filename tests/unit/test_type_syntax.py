from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everfill.kernel.errors import InvalidError
from everfill.tables.type_syntax import format_type, parse_type
from everfill.tables.types import ColumnType, TypeName

_LABELS = st.lists(
    st.text(min_size=1, max_size=8).filter(str.strip), min_size=1, max_size=5, unique=True
).map(tuple)
_PLAIN = [
    name
    for name in TypeName
    if name not in {TypeName.CHOICE, TypeName.CHOICES, TypeName.NUMBER, TypeName.VECTOR}
]
_TYPES = st.one_of(
    st.sampled_from(_PLAIN).map(lambda name: ColumnType(name=name)),
    st.builds(
        ColumnType,
        name=st.sampled_from([TypeName.CHOICE, TypeName.CHOICES]),
        choices=_LABELS,
        free=st.booleans(),
    ),
    st.builds(
        ColumnType,
        name=st.just(TypeName.NUMBER),
        format=st.sampled_from([None, "integer", "decimal", "percent", "EUR"]),
    ),
    st.builds(
        ColumnType,
        name=st.just(TypeName.VECTOR),
        dimensions=st.none() | st.integers(1, 16_000),
    ),
)


@given(_TYPES)
def test_a_type_written_and_read_is_the_same_type(column_type: ColumnType) -> None:
    assert parse_type(format_type(column_type)) == column_type


def test_choices_keep_their_order_and_a_star_lets_in_others() -> None:
    assert parse_type("choice(positive, neutral ,negative)").choices == (
        "positive",
        "neutral",
        "negative",
    )
    free = parse_type('choices("a, b",c,*)')
    assert (free.choices, free.free) == (("a, b", "c"), True)
    assert parse_type('choice("*",b)').free is False
    assert parse_type("choice(*)") == ColumnType(name=TypeName.CHOICE, free=True)


@pytest.mark.parametrize(
    "spec",
    ["", "txt", "text(a)", "number(euro)", "vector(many)", "vector(0)", "vector(99999)",
     'choice("a)', "text)", "date(iso)", "number(EUR,USD)", 'choice("a"b)', 'choice(a"b")',
     "vector(1.5)", "vector(3,4)", "vector(٣)", f"vector({'9' * 5000})"],
)  # fmt: skip
def test_a_spec_that_names_no_type_is_refused_with_a_hint(spec: str) -> None:
    with pytest.raises(InvalidError) as caught:
        parse_type(spec)
    assert caught.value.code == "type_invalid"
    assert caught.value.hint or "takes nothing" in caught.value.message


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        ("choice", "choices_empty"),
        ("choice()", "choices_empty"),
        ("choice(a,,b)", "choices_invalid"),
        ("choice(a,a)", "choices_invalid"),
    ],
)
def test_a_choice_needs_distinct_labels_that_are_not_blank(spec: str, code: str) -> None:
    with pytest.raises(InvalidError) as caught:
        parse_type(spec)
    assert caught.value.code == code


@pytest.mark.parametrize(
    "spec", ["choice(" + " " * 100_000 + '"x)', "choice(a" + " " * 100_000 + '"x)', "a" * 100_000]
)
def test_a_hostile_spec_is_refused_at_once_and_shown_in_part(spec: str) -> None:
    with pytest.raises(InvalidError) as caught:
        parse_type(spec)  # for ever, where the pattern tries every split of the spaces
    assert len(caught.value.message) < 100


def test_spaces_around_labels_do_not_count_and_inside_quotation_marks_do() -> None:
    assert parse_type(' choice ( a b\t, " c "\n,d\n) ').choices == ("a b", " c ", "d")
    assert parse_type('choice("say ""hi""")').choices == ('say "hi"',)


@given(st.text(alphabet='abchoie( ),"*\n', max_size=20))
def test_any_text_is_a_type_that_keeps_or_refused(text: str) -> None:
    with suppress(InvalidError):  # and nothing else
        column_type = parse_type(f"choices({text})")
        assert parse_type(format_type(column_type)) == column_type
