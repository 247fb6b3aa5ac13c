from __future__ import annotations

from pathlib import Path

import pytest

from everfill.autofill.columns import ColumnDraft, order_drafts
from everfill.cli.column_syntax import read_recipe
from everfill.kernel.errors import InvalidError

COLUMN = '[[column]]\nname = "x"\nkind = "template"\ntemplate = "{{text}}"\n'


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("column = [1, 2]", "column 1 is no table"),
        (COLUMN + "type = 5", "column 'x': type must be text"),
        (COLUMN + 'type = ["text"]', "column 'x': type must be text"),
        (COLUMN + "schedule = 1", "column 'x': schedule must be text"),
        (COLUMN + 'accepts_missing = "no"', "column 'x': accepts_missing must be true or false"),
        (COLUMN + "options = 1", "column 'x': options must be a table"),
        (COLUMN + "modle = 1", "column 'x': modle means nothing here"),
        ('[[column]]\nname = "x"\nkind = "template"', "column 'x': template is missing"),
        ('[[column]]\nname = 1\nkind = "a"\ntemplate = "b"', "column 1: name must be text"),
        ("", "has no [[column]]"),
    ],
)
def test_a_recipe_with_a_wrong_key_or_value_is_refused_in_words(
    tmp_path: Path, text: str, told: str
) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(text)
    with pytest.raises(InvalidError) as caught:
        read_recipe(recipe)
    assert caught.value.code == "recipe_invalid"
    assert told in caught.value.message


def draft(name: str, template: str) -> ColumnDraft:
    return ColumnDraft(name=name, kind="template", template=template)


def test_drafts_come_after_those_they_read() -> None:
    last, first = draft("b", "{{a}} {{text}}"), draft("a", "{{text}}")
    assert order_drafts([last, first]) == [first, last]


def test_columns_stay_in_the_order_given_where_that_is_possible() -> None:
    one, two = draft("one", "{{word}}"), draft("two", "{{one}}")
    three, four = draft("three", "{{word}}"), draft("four", "{{three}} {{two}}")
    assert order_drafts([one, two, three, four]) == [one, two, three, four]
    assert order_drafts([four, one, two, three]) == [one, two, three, four]
    assert order_drafts([two, three, one]) == [three, one, two]


def test_a_column_given_twice_is_refused() -> None:
    with pytest.raises(InvalidError, match="'a' is given twice"):
        order_drafts([draft("a", "{{x}}"), draft("a", "{{y}}")])


@pytest.mark.parametrize(
    "drafts", [[draft("a", "{{a}}")], [draft("a", "{{b}}"), draft("b", "{{a}}")]]
)
def test_drafts_that_read_each_other_in_a_circle_are_refused(drafts: list[ColumnDraft]) -> None:
    with pytest.raises(InvalidError) as caught:
        order_drafts(drafts)
    assert caught.value.code == "cycle"
