"""The processes alone: `everfill cell-worker`, `everfill setup-worker`."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Annotated, Final

import typer

from everfill.cli.console import DataDir, err, log_to_stderr, run, settings_of
from everfill.kernel.config import Settings

__all__ = ["api", "cell_worker", "setup_worker"]

_EXIT_AT_ONCE: Final = 130

Slots = Annotated[
    int | None, typer.Option("--slots", min=1, help="Remote calls under way at once.")
]
DrainSeconds = Annotated[
    float | None, typer.Option("--drain-seconds", min=0, help="How long calls may end at a stop.")
]
WhileStdinOpen = Annotated[
    bool, typer.Option("--while-stdin-open", hidden=True, help="Stop when stdin closes.")
]


def cell_worker(
    data_dir: DataDir = None,
    slots: Slots = None,
    drain_seconds: DrainSeconds = None,
    while_stdin_open: WhileStdinOpen = False,
) -> None:
    """Compute cells until stopped; as many of these as you like, anywhere."""
    from everfill.app.cell_process import run_cell_worker  # noqa: PLC0415 - start-up of others

    settings = settings_of(data_dir, worker__slots=slots, worker__drain_seconds=drain_seconds)
    run(_until_stopped(run_cell_worker, settings, while_stdin_open=while_stdin_open))


def setup_worker(data_dir: DataDir = None, while_stdin_open: WhileStdinOpen = False) -> None:
    """Run the setup workflows and the janitor until stopped."""
    from everfill.app.setup_process import run_setup_worker  # noqa: PLC0415 - imports Temporal

    run(_until_stopped(run_setup_worker, settings_of(data_dir), while_stdin_open=while_stdin_open))


def api(
    data_dir: DataDir = None,
    host: Annotated[str | None, typer.Option("--host", help="Address to bind.")] = None,
    port: Annotated[int | None, typer.Option("--port", min=0, max=65_535)] = None,
    while_stdin_open: WhileStdinOpen = False,
) -> None:
    """Serve HTTP: health, collections, progress and its events."""
    from everfill.api.server import run_api  # noqa: PLC0415 - imports the web framework

    settings = settings_of(data_dir, api__host=host, api__port=port)
    err.print(f"Serving http://{settings.api.host}:{settings.api.port} (Ctrl-C stops)")
    run(_until_stopped(run_api, settings, while_stdin_open=while_stdin_open))


async def _until_stopped(
    process: Callable[[Settings, asyncio.Event], Awaitable[None]],
    settings: Settings,
    *,
    while_stdin_open: bool,
) -> None:
    """Run a process until SIGTERM, SIGINT or (where asked) the end of stdin; twice: at once."""
    log_to_stderr(logging.INFO)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, _stop_or_leave, stop)
    if while_stdin_open:
        loop.add_reader(sys.stdin.fileno(), _stop_at_the_end, stop)
    await process(settings, stop)


def _stop_or_leave(stop: asyncio.Event) -> None:
    if stop.is_set():
        os._exit(_EXIT_AT_ONCE)
    stop.set()


def _stop_at_the_end(stop: asyncio.Event) -> None:
    if not os.read(sys.stdin.fileno(), 1_024):
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
        stop.set()
