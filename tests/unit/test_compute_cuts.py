from __future__ import annotations

import pytest

from everfill.compute.cuts import Policy, cut_inputs

LONG = "0123456789" * 1_000
PROMPT = f"Summarise {LONG} in one sentence."


def test_a_prompt_that_fits_stays_as_it_is() -> None:
    cut = cut_inputs("Say hi", {"a": "hi"}, chars_max=1_000, policy=Policy.HEAD)

    assert cut == ("Say hi", None)


@pytest.mark.parametrize("policy", list(Policy))
def test_the_words_around_an_input_stay_and_the_prompt_fits(policy: Policy) -> None:
    cut = cut_inputs(PROMPT, {"page": LONG}, chars_max=1_000, policy=policy)

    assert len(cut.text) <= 1_000
    assert len(cut.text) > 950, "no more is left out than has to be"
    assert cut.text.startswith("Summarise 0123456789")
    assert cut.text.endswith(" in one sentence.")


def test_the_cell_is_told_how_much_of_which_input_was_left_out() -> None:
    cut = cut_inputs(PROMPT, {"page": LONG, "b": 3}, chars_max=1_000, policy=Policy.HEAD)

    assert cut.note
    assert " of 10,000 characters of page were left out" in cut.note
    assert "its beginning" in cut.note


def test_both_ends_are_kept_where_that_is_asked_for() -> None:
    text = "A" * 5_000 + "Z" * 5_000
    cut = cut_inputs(text, {"page": text}, chars_max=1_000, policy=Policy.HEAD_AND_TAIL)

    assert cut.text.startswith("A" * 500)
    assert cut.text.endswith("Z" * 200)
    assert cut.text.count("A") > cut.text.count("Z") > 200


def test_the_longest_input_is_cut_first_and_another_if_that_is_not_enough() -> None:
    short, long = "s" * 2_000, "l" * 3_000
    inputs = {"short": short, "long": long}

    one = cut_inputs(short + long, inputs, chars_max=4_000, policy=Policy.HEAD)
    both = cut_inputs(short + long, inputs, chars_max=1_000, policy=Policy.HEAD)

    assert short in one.text
    assert len(one.text) <= 4_000
    assert both.note
    assert "of long" in both.note
    assert "of short" in both.note
    assert len(both.text) <= 1_100


def test_an_input_that_stands_twice_is_cut_twice() -> None:
    cut = cut_inputs(f"{LONG} and {LONG}", {"page": LONG}, chars_max=2_000, policy=Policy.HEAD)

    assert len(cut.text) <= 2_000
    assert cut.text.count("left out") == 2


def test_a_prompt_that_is_long_by_itself_is_left_to_the_model() -> None:
    cut = cut_inputs(LONG, {"page": "hi"}, chars_max=1_000, policy=Policy.HEAD)

    assert cut == (LONG, None)


def test_a_short_input_is_never_looked_for_in_the_words() -> None:
    text = "a short a"

    assert (
        cut_inputs(text * 500, {"x": "a"}, chars_max=1_000, policy=Policy.HEAD).text == text * 500
    )
