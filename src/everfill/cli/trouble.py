"""What a command that waited tells of the cells that have no value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.markup import escape

from everfill.autofill.progress import Failures, Waits
from everfill.cli.console import counted, err
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


def tell_trouble(failures: Sequence[Failures], waits: Sequence[Waits], *, again: str) -> ExitCode:
    """List why cells failed and wait; the exit code says whether any failed.

    Args:
        failures: By column and code.
        waits: By column and cause.
        again: How failed cells are tried again.
    """
    for item in failures[:_TOLD_MAX]:
        _tell_failure(item)
    if failures:
        err.print(f"Try them again {again}.", soft_wrap=True)
    for wait in waits[:_TOLD_MAX]:
        _tell_wait(wait)
    return ExitCode.CELLS_FAILED if failures else ExitCode.DONE


def _tell_failure(item: Failures) -> None:
    message = f": {escape(item.message)}" if item.message else ""
    err.print(
        f"[red]Failed:[/] {counted(item.count, 'cell')} of {escape(item.column)},"
        f" {item.code}{message}",
        soft_wrap=True,
    )


def _tell_wait(item: Waits) -> None:
    what = item.for_column or "an input"
    why = WAIT_REASONS.get(item.code, item.code.replace("_", " "))
    err.print(
        f"[yellow]Waiting:[/] {counted(item.count, 'cell')} of {escape(item.column)},"
        f" for {escape(what)} ({why})",
        soft_wrap=True,
    )
