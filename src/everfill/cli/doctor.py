"""`everfill doctor`: what runs where, and what is wrong with its fix."""

from __future__ import annotations

from dataclasses import asdict
from typing import Final

from rich.markup import escape

from everfill.app import open_app
from everfill.autofill.queue import QueueHealth
from everfill.cli.console import (
    AsJson,
    DataDir,
    err,
    out,
    print_json,
    print_table,
    run,
    settings_of,
)
from everfill.cli.exit_codes import ExitCode
from everfill.cli.watching import duration
from everfill.infra.stack.doctor import inspect_stack
from everfill.infra.stack.report import Severity, StackReport
from everfill.kernel.config import Settings
from everfill.kernel.errors import EverfillError

__all__ = ["doctor"]

_DEAD_TUPLES_MAX: Final = 50_000  # of a little hot table: something holds vacuum back
_OLD_SNAPSHOT_SECONDS: Final = 60.0
_BYTES_A_MEBIBYTE: Final = 1 << 20


def doctor(data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """What runs where, and what is wrong with its fix."""

    async def work() -> int:
        settings = settings_of(data_dir)
        report = await inspect_stack(settings)
        health = await _queue_health(settings, report)
        if as_json:
            print_json(asdict(report) | {"queue": asdict(health) if health else None})
        else:
            _print_report(report)
            _print_health(health)
        return ExitCode.DONE if report.is_healthy else ExitCode.UNAVAILABLE

    run(work())


async def _queue_health(settings: Settings, report: StackReport) -> QueueHealth | None:
    """How the queue is, where Postgres runs already; doctor starts nothing."""
    if not all(server.state == "running" for server in report.servers):
        return None
    try:
        async with open_app(settings, name="everfill-doctor") as app:
            return await app.queue.health()
    except EverfillError as error:
        err.print(f"[red]The queue cannot be read:[/] {escape(str(error))}")
        return None


def _print_report(report: StackReport) -> None:
    out.print(f"Data folder  {escape(str(report.data_dir))}")
    free = report.disk_free_bytes
    out.print(f"Free space   {_mebibytes(free)}")
    out.print(f"Logs         {escape(str(report.logs_dir))}\n")
    print_table(
        ["server", "where", "state", "version", "pid", "size", "address"],
        [
            [
                server.name,
                server.placement,
                _STATE_STYLES.get(server.state, "{}").format(server.state),
                server.version or "-",
                str(server.pid or "-"),
                _mebibytes(server.size_bytes),
                escape(server.address or "-"),
            ]
            for server in report.servers
        ],
    )
    for finding in report.findings:
        out.print(f"\n{_SEVERITY_STYLES[finding.severity]} {escape(finding.problem)}")
        out.print(f"  Fix: {escape(finding.fix)}")
    if not report.findings:
        out.print("\n[green]Nothing is wrong.[/]")


_STATE_STYLES: Final = {"running": "[green]{}[/]", "broken": "[red]{}[/]", "stopped": "[dim]{}[/]"}
_SEVERITY_STYLES: Final = {
    Severity.NOTE: "[dim]Note:[/]",
    Severity.WARNING: "[yellow]Warning:[/]",
    Severity.ERROR: "[red]Error:[/]",
}


def _mebibytes(size_bytes: int | None) -> str:
    return "-" if size_bytes is None else f"{size_bytes / _BYTES_A_MEBIBYTE:,.0f} MiB"


def _print_health(health: QueueHealth | None) -> None:
    if health is None:
        return
    out.print(
        f"\nQueue: {health.entries:,} unsettled cells, {health.claims:,} claims out, "
        f"{health.expired_claims:,} past their lease, {health.stalled_runs:,} stalled runs"
    )
    if health.expired_claims or health.stalled_runs:
        out.print("  Fix: start a setup worker (`everfill up`); its janitor takes them back.")
    if health.dead_tuples > _DEAD_TUPLES_MAX:
        out.print(
            f"[yellow]Warning:[/] {health.dead_tuples:,} dead rows in the little hot tables.\n"
            "  Fix: end the long transaction that holds vacuum back (a backup, a report)."
        )
    if health.oldest_snapshot_seconds > _OLD_SNAPSHOT_SECONDS:
        out.print(f"  The oldest transaction is {duration(health.oldest_snapshot_seconds)} old.")
