from __future__ import annotations

import csv
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from repository import ROOT, fences, name_of, pages

from everfill.compute.registry import get_kind, list_kinds

EXAMPLES = ROOT / "examples"
COLUMN_KEYS = {"name", "type", "kind", "template", "options", "schedule", "accepts_missing"}
INPUT_COLUMNS = {"reviews": {"id", "date", "place", "review"}, "documents": {"file"}}
_REFERENCE = re.compile(r"(?<!\\)\{\{\s*(.*?)\s*\}\}")


def _columns(text: str) -> list[dict[str, Any]]:
    recipe = tomllib.loads(text)
    assert set(recipe) == {"column"}
    return recipe["column"]


def _recipe_blocks() -> list[tuple[str, str]]:
    """Every recipe in the documentation."""
    blocks = [(name_of(page), block) for page in pages() for block in fences(page, "toml")]
    return [(name, block) for name, block in blocks if "[[column]]" in block]


@pytest.mark.parametrize("name", sorted(INPUT_COLUMNS))
def test_an_example_recipe_reads_only_columns_that_exist(name: str) -> None:
    known = set(INPUT_COLUMNS[name])
    for column in _columns((EXAMPLES / f"{name}.toml").read_text(encoding="utf-8")):
        assert set(_REFERENCE.findall(column["template"])) <= known, column["name"]
        known.add(column["name"])
    assert len(known) >= len(INPUT_COLUMNS[name]) + 4


@pytest.mark.parametrize("name", sorted(INPUT_COLUMNS))
def test_an_example_recipe_uses_kinds_and_options_that_exist(name: str) -> None:
    for column in _columns((EXAMPLES / f"{name}.toml").read_text(encoding="utf-8")):
        assert set(column) <= COLUMN_KEYS
        assert column["kind"] in list_kinds()
        if "type" not in column:
            kind = get_kind(column["kind"])
            kind.check(kind.spec.default_type, column.get("options", {}))


@pytest.mark.parametrize(("page", "block"), _recipe_blocks())
def test_a_recipe_in_the_documentation_has_only_known_keys_and_kinds(page: str, block: str) -> None:
    for column in _columns(block):
        assert set(column) <= COLUMN_KEYS, page
        assert {"name", "kind", "template"} <= set(column), page
        assert column["kind"] in list_kinds(), page


def test_the_reviews_are_at_least_two_hundred_and_all_differ() -> None:
    with (EXAMPLES / "reviews.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) >= 200
    assert set(rows[0]) == INPUT_COLUMNS["reviews"]
    assert len({row["id"] for row in rows}) == len({row["review"] for row in rows}) == len(rows)
    assert all(all(row.values()) for row in rows)


def test_the_documents_are_at_least_ten_in_all_formats() -> None:
    documents = sorted((EXAMPLES / "documents").iterdir())
    assert len(documents) >= 10
    formats = {path.suffix for path in documents}
    assert formats == {".docx", ".html", ".md", ".pdf", ".pptx", ".txt", ".xlsx"}


@pytest.mark.parametrize(
    "path", sorted((EXAMPLES / "documents").glob("*.pdf")), ids=lambda path: Path(path).name
)
def test_a_pdf_we_wrote_ourselves_can_be_read_back(path: Path) -> None:
    import pypdfium2  # noqa: PLC0415 - loads a native library that other tests do not need

    with pypdfium2.PdfDocument(path) as document:
        text = document[0].get_textpage().get_text_range()
    title = {"invoice": "Invoice 2026-0417", "mietvertrag": "Mietvertrag", "research": "Research"}
    assert text.startswith(title[path.name.partition("-")[0]])
