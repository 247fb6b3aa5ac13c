"""Records reach people as tables, files and charts."""

from __future__ import annotations

from pathlib import Path

import pytest

from everfill.bench.charts import draw_bars, draw_lines
from everfill.bench.record import Goal, Noise, Record
from everfill.cli.publishing import publish
from everfill.kernel.errors import InvalidError

NOISE = Noise(spread=0.01, slowest=1.1, load=0.2, stolen=0.0)


def record(**more: object) -> Record:
    result = {"subject": "everfill", "cells": 2_500_000, "entry_bytes": 2048.0, "lost": 0, **more}
    return Record(
        benchmark="some",
        settings={},
        results=[result],
        goals=[Goal(promise="more than 1", measured="0", met=False)],
        notes=["A note."],
        noise=NOISE,
    )


def test_a_record_is_printed_with_its_machine_noise_goals_and_notes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    publish(record(), lambda *_: None, to=None, plot=None, as_json=False)
    told = capsys.readouterr().out
    for words in ("some on", "spread 1.0%", "2.5 M", "2.0 kB", "missed", "more than 1", "A note."):
        assert words in told
    assert "lost" not in told  # none of them has any


def test_a_record_with_many_figures_has_a_column_for_each_result(
    capsys: pytest.CaptureFixture[str],
) -> None:
    more = {f"figure_{n}": n + 0.5 for n in range(8)}
    publish(record(**more), lambda *_: None, to=None, plot=None, as_json=False)
    assert "figure 7" in capsys.readouterr().out


def test_lines_and_bars_are_drawn_as_svg_and_png(tmp_path: Path) -> None:
    series = {"a": [(1.0, 2.0), (10.0, 30.0)], "b": [(1.0, 3.0), (10.0, 9.0)]}
    draw_lines(tmp_path / "l.svg", series, title="t", x_label="x", y_label="y")
    assert "<svg" in (tmp_path / "l.svg").read_text()
    draw_bars(tmp_path / "b.png", {"a": 1.0, "b": 2.0}, title="t", x_label="x")
    assert (tmp_path / "b.png").read_bytes().startswith(b"\x89PNG")


def test_a_chart_that_is_no_picture_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match="no picture"):
        draw_bars(tmp_path / "chart.txt", {"a": 1.0}, title="t", x_label="x")
