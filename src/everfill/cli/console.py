"""What every command shares: settings from flags, logs, errors and exit codes, tables."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import sys
from collections.abc import Coroutine, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn

import structlog
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from everfill.cli.exit_codes import ExitCode, exit_code_of
from everfill.infra.logs import log_to
from everfill.infra.postgres import OUTAGES, unavailable
from everfill.kernel.config import Settings, load_settings
from everfill.kernel.errors import EverfillError, InvalidError
from everfill.tables.values import MISSING, JsonValue, Missing, to_text

__all__ = [
    "DEFAULT_NAMESPACE",
    "AsJson",
    "DataDir",
    "Interrupted",
    "counted",
    "err",
    "fail",
    "out",
    "plain",
    "print_json",
    "print_table",
    "run",
    "settings_of",
    "shown",
    "split_collection",
    "tell_queued",
]

DEFAULT_NAMESPACE: Final = "default"
_SHOWN_CHARS_MAX: Final = 200
_COLLECT_AFTER_OBJECTS: Final = 50_000

_COLUMN_CHARS_MAX: Final = 48
_COLUMN_CHARS_LEAST: Final = 6  # narrower, a column tells nothing
_CONTROL: Final = {
    code: "\N{REPLACEMENT CHARACTER}"
    for code in (*range(0x20), *range(0x7F, 0xA0), *range(0xD800, 0xE000))
    if chr(code) not in "\n\t"
}


class _PlainConsole(Console):
    """A console whose texts cannot steer the terminal: tables hold what strangers wrote."""

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(plain(text), **options)


def plain(text: str) -> str:
    """The text without characters that a terminal obeys, or that cannot be written."""
    return text if text.isprintable() else text.translate(_CONTROL)


out: Final = _PlainConsole(highlight=False, emoji=False)
err: Final = _PlainConsole(stderr=True, highlight=False, emoji=False)

DataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", help="Where the embedded servers keep everything.", metavar="DIR"),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print data as JSON.")]


class Interrupted(Exception):  # noqa: N818 - it is no fault
    """A person pressed Ctrl-C; carries what to tell them."""


def settings_of(data_dir: Path | None = None, **flags: object) -> Settings:
    """The settings, with a command's flags on top; `__` in a flag's name stands for a dot."""
    given = {name.replace("__", "."): value for name, value in flags.items()}
    return load_settings({"data_dir": data_dir, **given})


def run(work: Coroutine[Any, Any, int | None]) -> NoReturn:
    """Run a command to its exit code; a fault is told in words, never as a traceback."""
    log_to_stderr()
    _spare_what_stays()
    try:
        code = asyncio.run(work)
    except EverfillError as error:
        fail(error)
    except OUTAGES as error:
        fail(unavailable(error))
    except Interrupted as stop:
        err.print(str(stop))
        leave(ExitCode.INTERRUPTED)
    except (KeyboardInterrupt, typer.Abort):
        err.print("Stopped.")
        raise SystemExit(ExitCode.INTERRUPTED) from None
    except Exception as error:
        if "EVERFILL_DEBUG" in os.environ:
            raise
        err.print(f"[red]Everfill failed:[/] {escape(type(error).__name__)}: {escape(str(error))}")
        err.print("This is a fault of Everfill. EVERFILL_DEBUG=1 shows where it is.")
        leave(ExitCode.FAULT)
    leave(code or ExitCode.DONE)


def _spare_what_stays() -> None:
    """Keep the garbage collector off what was imported, and let it wait for more than a page.

    Otherwise every few thousand cells it walks over all modules: a fifth of a fill's time.
    """
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER_OBJECTS, *gc.get_threshold()[1:])


def leave(code: int) -> NoReturn:
    """End the process at once, with everything written.

    Temporal's client runs threads of its own, which may call into an interpreter that is being
    taken down, and crash it; nothing of ours needs that interpreter any more.
    """
    sys.stdout.flush()
    with suppress(OSError):  # a worker's log may be on a full disk
        sys.stderr.flush()
    os._exit(code)


def fail(error: EverfillError) -> NoReturn:
    """Tell what is wrong and what to do, and leave with the code of its family."""
    err.print(f"[red]Error:[/] {escape(error.message)}", soft_wrap=True)
    if error.hint:
        err.print(escape(error.hint), soft_wrap=True)
    leave(exit_code_of(error))


def log_to_stderr(level: int = logging.ERROR) -> None:
    """Logs never mix with data; what a person needs to know is said in words anyway."""
    if "EVERFILL_DEBUG" in os.environ:
        level = logging.DEBUG
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=log_to(sys.stderr),
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setLevel(level)  # some libraries give their loggers a level of their own
    logging.basicConfig(level=level, handlers=[handler])


def split_collection(text: str) -> tuple[str, str]:
    """Namespace and name of `namespace/name` or `name`."""
    namespace, slash, name = text.rpartition("/")
    if slash and not namespace:
        raise InvalidError("name_invalid", f"{text!r} has no namespace before the slash.")
    return namespace or DEFAULT_NAMESPACE, name


def tell_queued(count: int, *, filled: int = 0) -> None:
    """Say how many cells were filled at once, how many were queued, and who computes those."""
    if filled:
        err.print(f"{counted(filled, 'cell')} filled.")
    if count or not filled:
        err.print(f"{counted(count, 'cell')} queued.")
    if count:
        err.print("[dim]Workers that run take them; `everfill up` starts some.[/]")


def counted(count: int, noun: str) -> str:
    """`1 cell`, `2,000 cells`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def print_json(value: object) -> None:
    """One JSON document on stdout."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False, indent=2, default=str) + "\n")


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    one_line: bool = False,
    **options: Any,
) -> None:
    """A table that fits the screen: of too many columns, those in the middle are left out.

    Where `one_line` says so, a row has one line, whatever its texts, and the widest columns give
    way first; else long texts are broken into lines, and nothing is cut.
    """
    heads, body = [escape(column) for column in columns], list(rows)
    head_count, tail_count = _fitting([heads, *body], out.width)
    left_out = len(heads) - head_count - tail_count
    if left_out:
        tail = len(heads) - tail_count
        heads = [*heads[:head_count], "…", *heads[tail:]]
        body = [[*row[:head_count], "…", *row[tail:]] for row in body]
    table = Table(show_edge=False, pad_edge=False, header_style="bold", **options)
    widths = _widths([heads, *body], out.width) if one_line else [None] * len(heads)
    for head, width in zip(heads, widths, strict=True):
        overflow = "ellipsis" if one_line else "fold"
        table.add_column(head, overflow=overflow, no_wrap=one_line, max_width=width)
    for row in body:
        table.add_row(*row)
    out.print(table)
    if left_out:
        err.print(f"[dim]{left_out:,} columns in the middle are left out.[/]")


def _fitting(rows: Sequence[Sequence[str]], width: int) -> tuple[int, int]:
    """How many columns fit the width, from the left and from the right; at least one of each."""
    needs = [
        min(max(Text.from_markup(cell).cell_len for cell in cells), _COLUMN_CHARS_LEAST) + 3
        for cells in zip(*rows, strict=True)
    ]
    if sum(needs) <= width + 3:
        return len(needs), 0
    left, right, used = 1, 1, needs[0] + needs[-1] + 1
    while left + right < len(needs):
        from_left = left <= right
        used += needs[left] if from_left else needs[-right - 1]
        if used > width:
            break
        left, right = left + from_left, right + (not from_left)
    return left, right


def _widths(rows: Sequence[Sequence[str]], width: int) -> Sequence[int]:
    """As wide as the cells; where the screen is too narrow, the widest columns give way first."""
    needs = [
        min(max(Text.from_markup(cell).cell_len for cell in cells), _COLUMN_CHARS_MAX)
        for cells in zip(*rows, strict=True)
    ]
    room = max(width - 3 * (len(needs) - 1), len(needs))
    while sum(needs) > room:
        needs[needs.index(max(needs))] -= 1
    return needs


def shown(value: JsonValue | Missing) -> str:
    """A value on one line of a table: files by name, long text cut, nothing as a dash."""
    if value is MISSING:
        return "[dim]-[/]"
    if value is None:
        return "[dim]null[/]"
    if isinstance(value, dict) and isinstance(value.get("name"), str) and "sha256" in value:
        return escape(str(value["name"]))
    text = " ".join(to_text(value).split())
    cut = text if len(text) <= _SHOWN_CHARS_MAX else text[:_SHOWN_CHARS_MAX] + "…"
    return escape(cut) if cut else '[dim]""[/]'
