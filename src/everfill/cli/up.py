"""`everfill up`: servers and workers in the foreground."""

from __future__ import annotations

import asyncio
import signal
from typing import Annotated, Final

import typer
from rich.markup import escape

from everfill.app import open_app
from everfill.cli.console import (
    DataDir,
    err,
    run,
    settings_of,
)
from everfill.cli.exit_codes import ExitCode
from everfill.cli.workers import start_workers

__all__ = ["up"]

_DRAIN_SECONDS: Final = 10.0


def up(
    workers: Annotated[int | None, typer.Option("--workers", min=1)] = None,
    slots: Annotated[int | None, typer.Option("--slots", min=1)] = None,
    data_dir: DataDir = None,
) -> None:
    """Start the servers and the workers, and keep them until Ctrl-C."""
    settings = settings_of(data_dir, worker__slots=slots, worker__processes=workers)

    async def work() -> int:
        stop = asyncio.Event()
        for name in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(name, stop.set)
        async with (
            open_app(settings, name="everfill-up") as app,
            start_workers(
                settings, cell_workers=settings.worker.processes, drain_seconds=_DRAIN_SECONDS
            ) as needed,
        ):
            needed.set()
            err.print("[bold]Everfill is up.[/] Ctrl-C stops it.")
            err.print(f"Data      {escape(str(settings.data_dir))}")
            err.print(f"Temporal  {app.endpoints.temporal_address}")
            err.print(f"Workers   {settings.worker.processes} x {settings.worker.slots} slots")
            await stop.wait()
            err.print("Stopping …")
        return ExitCode.DONE

    run(work())
