"""`everfill config show`: every setting and where it comes from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import typer
from rich.markup import escape

from everfill.cli.console import (
    AsJson,
    DataDir,
    print_json,
    print_table,
    run,
)
from everfill.cli.exit_codes import ExitCode
from everfill.kernel.config import setting_sources

__all__ = ["config"]

config = typer.Typer(help="Settings: what holds, and where it comes from.", no_args_is_help=True)


@config.command("show")
def config_show(data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Every setting, its value, and where it comes from."""

    async def work() -> int:
        found = setting_sources({"data_dir": str(data_dir) if data_dir else None})
        if as_json:
            print_json([asdict(item) for item in found])
        else:
            _print_settings(found)
        return ExitCode.DONE

    run(work())


def _print_settings(found: Sequence[Any]) -> None:
    print_table(
        ["setting", "value", "from"],
        [[item.key, escape(item.value) or "[dim]-[/]", escape(item.source)] for item in found],
    )
