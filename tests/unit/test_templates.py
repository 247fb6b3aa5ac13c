from __future__ import annotations

import pytest

from everfill.kernel.errors import InvalidError
from everfill.kernel.ids import ColumnId
from everfill.tables import templates

NAMES = {"review": ColumnId(7), "full name": ColumnId(12)}


def test_a_reference_is_stored_by_id_and_read_by_the_present_name() -> None:
    stored = templates.bind("Grade {{ review }} by {{full name}}.", NAMES)
    assert stored == "Grade {{#7}} by {{#12}}."
    renamed = {ColumnId(7): "opinion", ColumnId(12): "full name"}
    assert templates.unbind(stored, renamed) == "Grade {{opinion}} by {{full name}}."


def test_references_are_listed_once_in_order_of_mention() -> None:
    stored = templates.bind("{{full name}} {{review}} {{full name}}", NAMES)
    assert templates.references(stored) == (12, 7)


def test_a_template_that_is_one_reference_is_known_as_such() -> None:
    assert templates.sole_reference("  {{#7}} ") == 7
    assert templates.sole_reference("{{#7}}!") is None
    assert templates.sole_reference("{{#7}}{{#7}}") is None


def test_rendering_replaces_references_and_keeps_escaped_braces() -> None:
    stored = templates.bind(r"a \{{b}} {{review}}", NAMES)
    assert templates.references(stored) == (7,)
    assert templates.render(stored, lambda key: f"<{key}>") == "a {{b}} <7>"


def test_a_value_that_looks_like_a_reference_is_not_expanded_again() -> None:
    assert templates.render("{{#7}}", lambda _: "{{#12}}") == "{{#12}}"


def test_an_unclosed_reference_is_refused_where_it_opens() -> None:
    with pytest.raises(InvalidError, match="character 7") as caught:
        templates.bind("Grade {{review of it", NAMES)
    assert caught.value.code == "template_unclosed"


def test_an_unknown_column_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(InvalidError, match=r"Did you mean \{\{review\}\}") as caught:
        templates.bind("{{reviw}}", NAMES)
    assert caught.value.code == "column_unknown"


def test_an_empty_reference_is_refused() -> None:
    with pytest.raises(InvalidError):
        templates.bind("{{ }}", NAMES)


def test_a_copy_points_to_its_own_columns() -> None:
    assert templates.repoint("{{#7}} {{#12}}", {7: 70, 12: 120}) == "{{#70}} {{#120}}"
