"""Charts of a record, drawn by matplotlib (the extra `bench`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from everfill.kernel.errors import InvalidError

__all__ = ["draw_bars", "draw_lines"]

_COLOURS: Final = ("#1f6f8b", "#e07a3f", "#6a994e", "#8e6c8a", "#b5838d", "#577590")
_SIZE_INCHES: Final = (7.5, 4.5)


def draw_lines(
    path: Path,
    series: Mapping[str, Sequence[tuple[float, float]]],
    *,
    title: str,
    x_label: str,
    y_label: str,
    log: bool = True,
) -> None:
    """Draw one line a series into an SVG or PNG file.

    Raises:
        InvalidError: matplotlib is not installed, or the suffix is no picture's.
    """
    figure, axes = _canvas(path)
    for colour, (name, points) in zip(_COLOURS, series.items(), strict=False):
        xs, ys = [point[0] for point in points], [point[1] for point in points]
        axes.plot(xs, ys, marker="o", markersize=4, linewidth=1.8, color=colour, label=name)
    if log:
        axes.set_xscale("log")
        axes.set_yscale("log")
    axes.grid(visible=True, which="major", alpha=0.3)
    if len(series) > 1:
        axes.legend(frameon=False)
    _finish(figure, axes, path, title, x_label, y_label)


def draw_bars(
    path: Path, bars: Mapping[str, float], *, title: str, x_label: str, log: bool = False
) -> None:
    """Draw one bar a name, longest first, with its figure.

    Raises:
        InvalidError: matplotlib is not installed, or the suffix is no picture's.
    """
    figure, axes = _canvas(path)
    order = sorted(bars, key=lambda name: bars[name])
    drawn = axes.barh(order, [bars[name] for name in order], color=_COLOURS[0], height=0.6)
    axes.bar_label(drawn, fmt="{:,.0f}", padding=4)
    axes.margins(x=0.15)
    if log:
        axes.set_xscale("log")
    axes.grid(visible=True, axis="x", alpha=0.3)
    _finish(figure, axes, path, title, x_label, "")


def _canvas(path: Path) -> tuple[Any, Any]:
    if path.suffix not in {".svg", ".png"}:
        raise InvalidError(
            "chart_invalid",
            f"{path} is no picture that can be drawn.",
            hint="Give it the suffix .svg or .png.",
        )
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - an extra, and slow to import
    except ImportError:
        raise InvalidError(
            "chart_unavailable",
            "Charts are drawn by matplotlib, which is not installed.",
            hint="Install everfill[bench], or leave --plot out.",
        ) from None
    figure = Figure(figsize=_SIZE_INCHES, layout="constrained")
    return figure, figure.subplots()


def _finish(figure: Any, axes: Any, path: Path, title: str, x_label: str, y_label: str) -> None:
    axes.set_title(title, loc="left", fontsize=12)
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
