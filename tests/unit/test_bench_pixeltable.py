"""What the Pixeltable subject counts, without Pixeltable."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

import everfill.bench.peers

FOLDER = Path(everfill.bench.peers.__file__).parent
NAMES = ("word", "one", "two")


@pytest.fixture
def fill(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, found as its own Python finds it: beside the other files of its folder."""
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("pixeltable_fill")


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("pixeltable_check")


def loaded(**changed: float) -> dict[str, float]:
    """What an import of ten rows in two seconds tells."""
    told = {
        "insert_seconds": 1.5,
        "read_seconds": 0.5,
        "client_cpu_seconds": 0.3,
        "postgres_cpu_seconds": 0.1,
        "rows_missing": 0,
        "rows_wrong": 0,
        "rows_twice": 0,
    }
    return {**told, **changed}


def test_two_functions_give_two_cells_a_row(fill: ModuleType) -> None:
    asked = fill.arguments(["batch", "--folder", "f", "--rows", "10"])
    figures = fill.figures_of(loaded(), asked)
    assert figures["cells"] == 20
    assert figures["cells_per_second"] == 10.0
    assert figures["cpu_seconds_per_1000_cells"] == 20.0
    assert figures["all_right"] is True


def test_a_provider_gives_one_cell_a_row(fill: ModuleType) -> None:
    given = ["provider", "--folder", "f", "--rows", "10", "--provider-url", "http://127.0.0.1:1"]
    assert fill.figures_of(loaded(), fill.arguments(given))["cells"] == 10


@pytest.mark.parametrize("fault", ["rows_missing", "rows_wrong", "rows_twice"])
def test_one_row_at_fault_is_told(fill: ModuleType, fault: str) -> None:
    asked = fill.arguments(["batch", "--folder", "f", "--rows", "10"])
    assert fill.figures_of(loaded(**{fault: 1}), asked)["all_right"] is False


@pytest.mark.parametrize("mode", ["provider", "crash"])
def test_a_mode_that_calls_needs_a_provider(
    fill: ModuleType, mode: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        fill.arguments([mode, "--folder", "f", "--rows", "10"])
    assert "needs --provider-url" in capsys.readouterr().err


def test_an_edit_that_timed_out_counts_as_long_as_it_was_waited_for(fill: ModuleType) -> None:
    found = [{"seconds": 0.2, "right": 1}, {"seconds": 0.4}, {"timed_out_after_seconds": 60.0}]
    told = fill.summary(found)
    assert (told["edits"], told["timed_out"]) == (3, 1)
    assert (told["p50_ms"], told["worst_ms"]) == (400.0, 60_000.0)
    assert told["all_right"] is False


def test_no_edit_has_no_latency(fill: ModuleType) -> None:
    told = fill.summary([])
    assert (told["p50_ms"], told["worst_ms"]) == (None, None)


@pytest.mark.parametrize(
    ("edited", "counts"),
    [
        ({"seconds": 7.0, "ended": 12.0}, True),
        ({"seconds": 1.0, "ended": 12.0}, False),
        ({"timed_out_after_seconds": 60.0}, True),
    ],
)
def test_an_edit_asked_for_after_the_import_is_not_one_of_its_time(
    fill: ModuleType, edited: dict[str, float], counts: bool
) -> None:
    assert fill.began_before(edited, 10.0) is counts


def test_rows_are_counted_as_missing_wrong_or_twice(check: ModuleType) -> None:
    found = [
        ("w0", "1 w0", "2 1 w0"),
        ("w0", "1 w0", "2 1 w0"),
        ("w1", "1 w1", "2 w1"),
        ("seed0", "not", "asked for"),
    ]
    told = check.check(found, NAMES, ["w0", "w1", "w2"], "")
    assert told == {"rows_missing": 1, "rows_wrong": 1, "rows_twice": 1}


@pytest.mark.parametrize(
    ("answer", "template", "right"),
    [
        ("answer to w0", "answer to {input}", True),
        ("answer to w1", "answer to {input}", False),
        ("anything", "", True),
        (None, "", False),
    ],
)
def test_an_answer_is_compared_where_it_is_known(
    check: ModuleType, answer: str | None, template: str, right: bool
) -> None:
    assert check.is_right(("w0", answer), ("word", "answer"), template) is right
