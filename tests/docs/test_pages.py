from __future__ import annotations

import re
from pathlib import Path

import pytest
from repository import ROOT, name_of, pages, without_fences

_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_ADR_FOLDER = ROOT / "docs" / "adr"


def _slug(heading: str) -> str:
    """A heading's anchor, as the usual Markdown renderers make it."""
    plain = re.sub(r"[`*_]", "", heading.strip().lower())
    return re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")


def _anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+\s+(.*)$", without_fences(page), re.MULTILINE)
    return {_slug(heading) for heading in headings}


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_every_relative_link_of_a_page_leads_somewhere(page: Path) -> None:
    for link in _LINK.findall(without_fences(page)):
        if "://" in link or link.startswith("mailto:"):
            continue
        target, _, anchor = link.partition("#")
        file = (page.parent / target).resolve() if target else page
        assert file.exists(), f"{name_of(page)} links to {link}, which does not exist"
        if anchor and file.suffix == ".md":
            assert anchor in _anchors(file), f"{name_of(page)}: no heading for #{anchor} in {file}"


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_every_page_opens_with_one_title(page: Path) -> None:
    prose = without_fences(page)
    assert prose.lstrip().startswith("# ")
    assert len(re.findall(r"^# ", prose, re.MULTILINE)) == 1


def _decisions() -> list[Path]:
    return sorted(_ADR_FOLDER.glob("[0-9]*.md"))


@pytest.mark.parametrize("page", _decisions(), ids=name_of)
def test_a_decision_is_titled_by_a_sentence_and_gives_alternatives(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    title = text.splitlines()[0].removeprefix("# ")
    assert title[:1].isupper()
    assert len(title.split()) >= 4, f"{title!r} is no sentence"
    for part in ("Context", "Decision", "Alternatives"):
        assert f"\n## {part}" in text, f"no part {part}"
