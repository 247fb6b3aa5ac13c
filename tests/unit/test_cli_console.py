from __future__ import annotations

import pytest
import typer

from everfill.cli import console
from everfill.cli.console import out, plain, print_table, run, tell_queued
from everfill.cli.exit_codes import ExitCode


def test_a_text_cannot_steer_the_terminal() -> None:
    with out.capture() as captured:
        out.print("a\x1b[2J\x1b]0;title\x07b\x9bc\x00\udcff :smile:", markup=False)
    assert captured.get() == "a\ufffd[2J\ufffd]0;title\ufffdb\ufffdc\ufffd\ufffd :smile:\n"


def test_printable_text_stays_as_it_is() -> None:
    assert plain("naïve 😀 «x»\n\ty") == "naïve 😀 «x»\n\ty"


def test_a_table_too_wide_leaves_out_columns_in_the_middle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(out, "width", 40)
    names = [f"c{number}" for number in range(1_000)]
    with out.capture() as captured:
        print_table(names, [[f"v{number}" for number in range(1_000)]])
    head, _, row = captured.get().splitlines()[:3]
    assert head.split("┃")[0].strip() == "c0"
    assert head.split("┃")[-1].strip() == "c999"
    assert row.split("│")[0].strip() == "v0"
    assert row.split("│")[-1].strip() == "v999"


def test_a_table_that_fits_is_whole() -> None:
    with out.capture() as captured:
        print_table(["a", "b"], [["1", "2"]])
    assert "…" not in captured.get()


def test_a_table_of_one_line_a_row_narrows_its_widest_column(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(out, "width", 30)
    with out.capture() as captured:
        print_table(["id", "review"], [["R007", "long " * 20], ["R008", "short"]], one_line=True)
    lines = captured.get().splitlines()
    assert len(lines) == 4
    assert lines[2] == "R007 │ long long long long lo…"


def test_another_table_breaks_long_texts_and_cuts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(out, "width", 30)
    with out.capture() as captured:
        print_table(["key", "value"], [["url", "x" * 60]])
    assert captured.get().count("x") == 60


def test_queued_cells_are_counted_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    for count in (0, 1, 1_200):
        tell_queued(count)
    takers = "Workers that run take them; `everfill up` starts some.\n"
    assert capsys.readouterr().err == (
        f"0 cells queued.\n1 cell queued.\n{takers}1,200 cells queued.\n{takers}"
    )


def test_cells_that_were_filled_at_once_are_not_said_to_be_queued(
    capsys: pytest.CaptureFixture[str],
) -> None:
    tell_queued(0, filled=2_000)
    assert capsys.readouterr().err == "2,000 cells filled.\n"


def test_whoever_says_no_is_told_of_no_fault(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for whole_process in ("_spare_what_stays", "log_to_stderr"):
        monkeypatch.setattr(console, whole_process, lambda: None)

    async def refused() -> int:
        raise typer.Abort

    with pytest.raises(SystemExit) as end:
        run(refused())
    assert end.value.code == ExitCode.INTERRUPTED
    assert capsys.readouterr().err == "Stopped.\n"
