from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everfill.tables.values import BlobRef, decode, encode, to_text

TEXTS = st.text(st.characters(codec=None))
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


@given(VALUES)
def test_a_value_comes_back_as_it_went_in(value: object) -> None:
    assert decode(encode(value)) == value


@given(VALUES)
def test_what_is_stored_is_something_postgres_can_hold(value: object) -> None:
    text = encode(value).decode("utf-8", "strict")
    assert "\\u0000" not in text.replace("\\\\", "")
    json.loads(text).__class__  # noqa: B018 - it is JSON


def test_a_nul_and_half_a_surrogate_pair_are_kept() -> None:
    assert encode("a\0b") == '"a\ufdd00000b"'.encode()
    assert decode(encode("\ud800")) == "\ud800"


def test_a_text_cannot_be_mistaken_for_a_blob() -> None:
    ref = BlobRef(sha256="a" * 64, size_bytes=5)
    assert decode(encode(ref)) == ref
    forged = f"\ufdd0blob:{'a' * 64}:5"
    assert decode(encode(forged)) == forged


def test_nan_is_refused_rather_than_stored_as_null() -> None:
    with pytest.raises(ValueError, match="NaN"):
        encode(float("nan"))


def test_text_of_values_in_templates() -> None:
    assert [to_text(v) for v in ("a", None, 3, 3.5, True, ["x", 1])] == [
        "a",
        "",
        "3",
        "3.5",
        "true",
        '["x", 1]',
    ]
