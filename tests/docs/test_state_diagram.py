from __future__ import annotations

import sys
from typing import get_args

import pytest
from repository import ROOT

sys.path.append(str(ROOT / "tools"))

from state_diagram import BEGIN, NAMES, arrows, mermaid, with_diagram

from everfill.autofill.machine import TRANSITIONS, Claim, Event, Finalize, State
from everfill.kernel import limits


def test_the_diagram_has_the_arrows_that_a_reader_looks_for() -> None:
    found = set(arrows())

    assert (State.QUEUED, NAMES[Claim], State.COMPUTING) in found
    assert (State.COMPUTING, "an answer", State.DONE) in found
    assert (State.COMPUTING, "fails in passing", State.RETRYING) in found
    assert (State.COMPUTING, "fails in passing, the last try", State.ERROR) in found
    assert (State.COMPUTING, "an answer, signalled meanwhile, the last round", State.DONE) in found
    assert (State.BLOCKED, "its upstreams settle", State.QUEUED) in found
    assert limits.TRIES_MAX < limits.LOST_TRIES_MAX  # else the words for worn cells would mix


def test_nothing_leads_out_of_a_state_that_the_table_does_not_have() -> None:
    moving = {state for state, _ in TRANSITIONS}

    assert {before for before, _, _ in arrows()} <= moving
    assert set(NAMES) | {Finalize} == set(get_args(Event))


def test_every_state_stands_in_the_diagram() -> None:
    assert all(f" {state} -->" in mermaid() for state in State)
    assert all(f"--> {state}:" in mermaid() for state in State)


def test_a_page_keeps_what_stands_around_its_diagram() -> None:
    page = (ROOT / "docs" / "explanation" / "cell-states.md").read_text(encoding="utf-8")

    assert with_diagram(page) == page, "run `just reference`"
    with pytest.raises(ValueError, match="mark"):
        with_diagram(page.replace(BEGIN, ""))
