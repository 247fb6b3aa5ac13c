"""The `everfill` command."""

from __future__ import annotations

from typing import Annotated

import typer

from everfill import __version__
from everfill.cli import (
    bench,
    cells,
    collections,
    columns,
    doctor,
    fill,
    processes,
    reprocess,
    rows,
    settings,
    show,
    status,
    up,
)
from everfill.cli.console import fail
from everfill.kernel.errors import EverfillError

__all__ = ["app", "main"]

app = typer.Typer(
    name="everfill",
    help="Tables that keep themselves filled.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def everfill(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Tables that keep themselves filled."""
    del version


app.command()(fill.fill)
app.command()(up.up)
app.command()(doctor.doctor)
app.command()(status.status)
app.command()(reprocess.reprocess)
app.command()(show.show)
app.command()(processes.api)
app.command("cell-worker")(processes.cell_worker)
app.command("setup-worker")(processes.setup_worker)
app.add_typer(collections.collection, name="collection")
app.add_typer(columns.column, name="column")
app.add_typer(rows.row, name="row")
app.add_typer(cells.cell, name="cell")
app.add_typer(settings.config, name="config")
app.add_typer(bench.bench, name="bench")


def main() -> None:
    """The entry point."""
    try:
        app()
    except EverfillError as error:  # before a command's own work began: its settings, say
        fail(error)
