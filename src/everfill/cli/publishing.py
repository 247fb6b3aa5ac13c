"""How a benchmark's record reaches people: a table, a file, a chart."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.filesize import decimal
from rich.markup import escape

from everfill.bench.record import Record, Scalar
from everfill.cli.console import err, out, print_table

__all__ = ["Plot", "RecordFile", "publish", "tell"]

RecordFile = Annotated[
    Path | None, typer.Option("--out", help="Write the record as JSON.", metavar="FILE")
]
Plot = Annotated[
    Path | None, typer.Option("--plot", help="Draw a chart (.svg or .png).", metavar="FILE")
]
_MILLION: Final = 1_000_000
_BILLION: Final = 1_000_000_000
_WHOLE_LEAST: Final = 1_000
_COLUMNS_MAX: Final = 5
_ACROSS_MAX: Final = 7  # with more figures than these, a result is a column and no line


def tell(text: str) -> None:
    """Say what runs now."""
    err.print(f"[dim]{escape(text)}[/]")


def publish(
    record: Record,
    draw: Callable[[Record, Path], None],
    *,
    to: Path | None,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Print a record, and write and draw it where that was asked for."""
    if to:
        record.write(to)
    if plot:
        draw(record, plot)
    if as_json:
        out.print(record.to_json(), end="", soft_wrap=True, markup=False)
        return
    _print_machine(record)
    _print_results(record.results)
    for goal in record.goals:
        mark = "[green]met[/]    " if goal.met else "[red]missed[/] "
        out.print(f"{mark} {escape(goal.promise)}: {escape(goal.measured)}", soft_wrap=True)
    for note in record.notes:
        out.print(f"[dim]{escape(note)}[/]", soft_wrap=True)


def _print_results(results: Sequence[Mapping[str, Scalar]]) -> None:
    """Few figures: a line a result. Many: a column a result, without what none of them has."""
    keys = [key for key in results[0] if any(result[key] for result in results)]
    lines = [[_words(key), *(_shown(key, result[key]) for result in results)] for key in keys]
    if len(keys) <= _ACROSS_MAX:
        heads, *body = [list(line) for line in zip(*lines, strict=True)]
        print_table(heads, body)
        return
    for first in range(1, len(results) + 1, _COLUMNS_MAX):
        heads, *body = [[line[0], *line[first : first + _COLUMNS_MAX]] for line in lines]
        print_table(heads, body)
        out.print()


def _print_machine(record: Record) -> None:
    machine, noise = record.machine, record.noise
    out.print(
        f"[bold]{record.benchmark}[/] on {machine.cores} cores, {machine.memory_gib} GiB,"
        f" {escape(machine.processor)}, {machine.system}, Python {machine.python}",
        soft_wrap=True,
    )
    out.print(f"[dim]Versions: {_listed(machine.packages)}.[/]", soft_wrap=True)
    if record.settings:
        out.print(f"[dim]Settings: {_listed(record.settings)}.[/]", soft_wrap=True)
    out.print(
        f"[dim]Noise just before: one loop's times spread {noise.spread:.1%},"
        f" the slowest {noise.slowest} times the median; load {noise.load} a core,"
        f" {noise.stolen:.1%} stolen by the host.[/]",
        soft_wrap=True,
    )


def _listed(values: Mapping[str, Scalar]) -> str:
    return escape(", ".join(f"{_words(key)} {value}" for key, value in values.items()))


def _words(key: str) -> str:
    return key.replace("_", " ")


def _shown(key: str, value: Scalar) -> str:
    """A figure as people read it; the record has every digit."""
    if value is None:
        return "[dim]-[/]"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return escape(value)
    if key.endswith("_bytes"):
        return decimal(int(value))
    if isinstance(value, int) or value >= _WHOLE_LEAST:
        return _count(round(value))
    return f"{value:,.4g}"


def _count(value: int) -> str:
    if value >= _BILLION:
        return f"{value / _BILLION:,.3g} G"
    return f"{value / _MILLION:,.3g} M" if value >= _MILLION else f"{value:,}"
