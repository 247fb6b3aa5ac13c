from __future__ import annotations

import sys

import pytest
from repository import ROOT

sys.path.append(str(ROOT / "tools"))

from make_reference import DOCS, PAGES


@pytest.mark.parametrize("page", sorted(PAGES))
def test_a_generated_page_says_what_the_code_says(page: str) -> None:
    shown = (DOCS / page).read_text(encoding="utf-8")
    assert shown == PAGES[page](), "run `just reference`"
