"""What a command that waited tells of the cells that have no value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.markup import escape

from everfill.autofill.progress import Failures, Waits
from everfill.cli.console import err
from everfill.cli.exit_codes import ExitCode

__all__ = ["WAIT_REASONS", "tell_trouble"]

_TOLD_MAX: Final = 8  # kinds of failure or wait that are listed
WAIT_REASONS: Final = {
    "input_missing": "it is empty",
    "upstream_unsettled": "it is not settled yet",
    "upstream_failed": "it failed",
    "upstream_not_found": "nothing was found",
    "upstream_waiting": "it waits itself",
    "upstream_empty": "it is not computed",
}
"""Why a cell waits for another, for people."""


def tell_trouble(failures: Sequence[Failures], waits: Sequence[Waits]) -> ExitCode:
    """List why cells failed and wait; the exit code says whether any failed."""
    _tell_failures(failures)
    _tell_waits(waits)
    return ExitCode.CELLS_FAILED if failures else ExitCode.DONE


def _tell_failures(failures: Sequence[Failures]) -> None:
    for item in failures[:_TOLD_MAX]:
        message = f": {escape(item.message)}" if item.message else ""
        err.print(
            f"[red]Failed:[/] {item.count:,} x {escape(item.column)}, {item.code}{message}",
            soft_wrap=True,
        )
    if failures:
        err.print("Try them again by running the same command, or see `everfill show`.")


def _tell_waits(waits: Sequence[Waits]) -> None:
    for item in waits[:_TOLD_MAX]:
        what = item.for_column or "an input"
        why = WAIT_REASONS.get(item.code, item.code.replace("_", " "))
        err.print(
            f"[yellow]Waiting:[/] {item.count:,} x {escape(item.column)}, for {escape(what)} "
            f"({why})",
            soft_wrap=True,
        )
