"""The page of failures knows every code that a cell can end with."""

from __future__ import annotations

import re

import pytest
from repository import ROOT

_PAGE = ROOT / "docs" / "reference" / "failures.md"
_CODE = re.compile(
    r"""(?:Failure\(\s*|_failure\(|_Verdict\(|(?:Unreadable|Forbidden)Error\(|"code":\ |\bcode=)"
    ([a-z]+(?:_[a-z]+)+|timeout|refused)"(?!\ :)""",
    re.VERBOSE,
)
_NO_FAILURES = {"not_found", "input_changed", "rounds_exhausted"}


def _codes() -> set[str]:
    folders = [ROOT / "src" / "everfill" / part for part in ("compute", "autofill")]
    files = [path for folder in folders for path in folder.rglob("*.py")]
    return {code for path in files for code in _CODE.findall(path.read_text())} - _NO_FAILURES


def test_codes_are_found() -> None:
    assert {
        "key_invalid",
        "provider_failed",
        "url_invalid",
        "file_broken",
        "worker_lost",
    } <= _codes()


@pytest.mark.parametrize("code", sorted(_codes()))
def test_the_page_tells_of_every_code(code: str) -> None:
    assert f"`{code}`" in _PAGE.read_text()
