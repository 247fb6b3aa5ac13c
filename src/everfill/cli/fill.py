"""`everfill fill`: a file in, a filled table out; run again, it resumes."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import sys
from collections.abc import Coroutine, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.markup import escape

from everfill.app import App, open_app
from everfill.autofill.columns import ColumnDraft, order_drafts
from everfill.autofill.dispatch import Only, Request
from everfill.autofill.intake import Intake, Taken
from everfill.autofill.progress import (
    Progress,
    list_failures,
    list_waits,
    read_progress,
)
from everfill.cli.column_syntax import parse_column, read_recipe
from everfill.cli.console import (
    DEFAULT_NAMESPACE,
    AsJson,
    DataDir,
    Interrupted,
    err,
    print_json,
    run,
    settings_of,
)
from everfill.cli.exit_codes import ExitCode
from everfill.cli.export import export, load_page, print_page
from everfill.cli.trouble import tell_trouble
from everfill.cli.watching import Meter, counts_line, dispatch_until_settled, duration
from everfill.cli.workers import start_workers
from everfill.compute.registry import get_kind
from everfill.infra.postgres import persist
from everfill.kernel.config import Settings
from everfill.kernel.errors import InvalidError
from everfill.kernel.ids import CollectionId, ColumnId
from everfill.tables import templates
from everfill.tables.definitions import Definitions, check_name
from everfill.tables.exports import check_target
from everfill.tables.imports import Source, file_missing, open_source
from everfill.tables.schema import Schema

__all__ = ["fill"]

_DRAIN_SECONDS: Final = 3.0
_SHOWN_ROWS: Final = 10
_AUTHOR: Final = "person:cli"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Order:
    """What a person asked for."""

    source: Path
    drafts: Sequence[ColumnDraft]
    out: Path | None
    namespace: str
    name: str
    skip_bad_rows: bool
    with_status: bool
    sheet: str | None
    as_json: bool
    workers: int


def fill(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="INPUT",
            help="A CSV, TSV, JSONL, Parquet or Excel file, a folder of files, or a list of URLs.",
        ),
    ],
    column: Annotated[
        list[str] | None,
        typer.Option("--column", "-c", help="'name[:type] = kind: template'; may be repeated."),
    ] = None,
    recipe: Annotated[
        Path | None, typer.Option("--recipe", "-r", help="Columns in a TOML file.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Where the table goes: .csv .tsv .jsonl .parquet .xlsx"),
    ] = None,
    namespace: Annotated[str, typer.Option("--namespace")] = DEFAULT_NAMESPACE,
    collection: Annotated[
        str | None, typer.Option("--collection", help="Default: the input's name.")
    ] = None,
    skip_bad_rows: Annotated[
        bool, typer.Option("--skip-bad-rows", help="Go on without rows that cannot be read.")
    ] = False,
    sheet: Annotated[
        str | None, typer.Option("--sheet", help="Of an Excel file; default: the first.")
    ] = None,
    with_status: Annotated[
        bool, typer.Option("--with-status", help="Also write each cell's status and error.")
    ] = False,
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, help="Cell worker processes.")
    ] = None,
    slots: Annotated[
        int | None, typer.Option("--slots", min=1, help="Remote calls at once, of each worker.")
    ] = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Import INPUT, fill the columns, write the table. Run again, it resumes."""
    settings = settings_of(data_dir, worker__slots=slots, worker__processes=workers)

    async def work() -> int:
        given = [*(read_recipe(recipe) if recipe else []), *map(parse_column, column or [])]
        drafts = order_drafts(given)
        name = collection or source.resolve().stem
        check_name("collection", name)
        if not source.exists():  # told before the servers start
            raise file_missing(source)
        if output:
            check_target(output, source)
        order = _Order(
            source=source,
            drafts=drafts,
            out=output,
            namespace=namespace,
            name=name,
            skip_bad_rows=skip_bad_rows,
            with_status=with_status,
            sheet=sheet,
            as_json=as_json,
            workers=settings.worker.processes,
        )
        return await _interruptible(_fill(settings, order))

    run(work())


async def _interruptible(work: Coroutine[Any, Any, int]) -> int:
    """Stop cleanly at the first Ctrl-C or SIGTERM and say how to resume; at once at the second."""
    task = asyncio.create_task(work)
    loop = asyncio.get_running_loop()
    stopped = False

    def stop() -> None:
        nonlocal stopped
        if stopped:
            os._exit(ExitCode.INTERRUPTED)
        stopped = True
        err.print("Stopping; once more stops at once.")
        task.cancel()

    for name in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(name, stop)
    try:
        return await task
    except asyncio.CancelledError:
        command = shlex.join(["everfill", *sys.argv[1:]])
        told = f"Stopped. Nothing that is finished is lost. Resume with:\n  {escape(command)}"
        raise Interrupted(told) from None


async def _fill(settings: Settings, order: _Order) -> int:
    started = asyncio.get_running_loop().time()
    with Meter() as meter:
        meter.tell("Starting", "")
        async with open_app(settings, name="everfill-fill") as app:
            meter.tell("Reading", escape(str(order.source)))
            source = await asyncio.to_thread(
                open_source,
                order.source,
                on_bad_row="skip" if order.skip_bad_rows else "stop",
                files=app.blobs,
                sheet=order.sheet,
            )
            await _check_references(app, order, source)
            async with start_workers(
                settings, cell_workers=order.workers, drain_seconds=_DRAIN_SECONDS
            ) as needed:
                if not all(_is_pure(draft) for draft in order.drafts):
                    needed.set()  # they come up while rows are taken in
                collection_id, taken = await _import(app, order, source, meter)
                await app.columns.ensure(collection_id, order.drafts, author=_AUTHOR)
                schema = await _schema(app, collection_id)
                await _compute(app, schema, meter, needed)
            schema = await _schema(app, collection_id)  # somebody may have changed it meanwhile
            names = {column.column_id: column.name for column in schema.computed}
            counts = await persist(lambda: read_progress(app.pool, collection_id, names))
            if order.out:
                rows = counts.rows
                source.notes += await export(
                    app,
                    collection_id,
                    order.out,
                    with_status=order.with_status,
                    on_rows=lambda n: meter.tell("Writing", f"{n:,} rows", done=n, total=rows),
                )
            meter.stop()
            seconds = asyncio.get_running_loop().time() - started
            return await _summarise(app, order, schema, source, taken, counts, seconds)


async def _check_references(app: App, order: _Order, source: Source) -> None:
    """Refuse a template that reads a column that will not be there, before anything is taken."""
    async with app.pool.connection() as connection:
        definitions = Definitions(connection)
        found = await definitions.find_collection(order.namespace, order.name)
        names = list((await definitions.load_schema(found.collection_id)).ids) if found else []
    names += [column.name for column in source.columns]
    names += [draft.name for draft in order.drafts]
    places = {name: ColumnId(place) for place, name in enumerate(names)}
    for draft in order.drafts:
        try:
            templates.bind(draft.template or "", places)
        except InvalidError as error:
            message = f"Column {draft.name!r}: {error.message}"
            raise InvalidError(error.code, message, hint=error.hint) from None


async def _import(
    app: App, order: _Order, source: Source, meter: Meter
) -> tuple[CollectionId, Taken]:
    intake = Intake(app.pool, app.edits, app.columns)
    cap_cells = app.settings.limits.collection_cap
    collection = await intake.ensure_collection(order.namespace, order.name, cap_cells=cap_cells)
    taken = await intake.take(
        collection,
        order.source,
        source,
        author=f"source:{order.source.name}",
        sheet=order.sheet,
        on_rows=lambda n: meter.tell("Importing", f"{n:,} rows", done=n, total=source.row_count),
    )
    return collection.collection_id, taken


def _is_pure(draft: ColumnDraft) -> bool:
    """Whether the dispatch itself fills the column, where nothing is in the way."""
    return draft.kind is None or get_kind(draft.kind).spec.pure


async def _compute(app: App, schema: Schema, meter: Meter, needed: asyncio.Event) -> None:
    """Dispatch what is unfinished and watch it settle, with workers where it takes any."""
    request = Request(
        collection_id=schema.collection_id,
        only=Only.UNFINISHED,
        author=_AUTHOR,
        reason="import",
    )
    await dispatch_until_settled(app, schema, request, meter, on_unsettled=needed.set)


async def _summarise(
    app: App,
    order: _Order,
    schema: Schema,
    source: Source,
    taken: Taken,
    counts: Progress,
    seconds: float,
) -> int:
    """Tell what was done, and what was not; the exit code says whether cells failed."""
    names = {column.column_id: column.name for column in schema.computed}
    failures = await list_failures(app.pool, schema.collection_id, names)
    waits = await list_waits(app.pool, schema.collection_id, names)
    if order.as_json:
        print_json(
            {
                "collection": f"{order.namespace}/{order.name}",
                "rows": counts.rows,
                "imported": asdict(taken),
                "bad_rows": source.bad_row_count,
                "cells": dict(counts.total),
                "spending": asdict(counts.spending),
                "failures": [asdict(item) for item in failures],
                "waits": [asdict(item) for item in waits],
                "seconds": round(seconds, 3),
                "out": str(order.out) if order.out else None,
            }
        )
    elif not order.out:
        print_page(schema.columns, await load_page(app, schema, first=1, count_max=_SHOWN_ROWS))
    _tell(order, source, taken, counts, seconds)
    return tell_trouble(failures, waits, again="by running the same command")


def _tell(order: _Order, source: Source, taken: Taken, counts: Progress, seconds: float) -> None:
    for note in source.notes:
        err.print(f"[dim]Note:[/] {escape(note)}", soft_wrap=True)
    for bad in source.bad_rows:
        err.print(f"[yellow]Left out:[/] line {bad.line}: {escape(bad.reason)}", soft_wrap=True)
    if more := source.bad_row_count - len(source.bad_rows):
        err.print(f"[yellow]Left out:[/] {more:,} more rows.")
    came = "unchanged since the last import" if taken.skipped else _came(taken)
    err.print(
        f"[bold]{order.namespace}/{order.name}[/]: {counts.rows:,} rows ({came}), "
        f"{counts_line(counts)}, in {duration(seconds)}.",
        soft_wrap=True,
    )
    if order.out:
        err.print(f"Written to {escape(str(order.out))}.", soft_wrap=True)
    elif not order.as_json:
        err.print("Add --out FILE to write the whole table.")
    if not counts.cells and counts.rows:
        err.print("No column is computed yet: name some with --column or --recipe.")


def _came(taken: Taken) -> str:
    known = taken.read - taken.appended
    parts = [f"{taken.appended:,} new"]
    if known:
        parts.append(f"{known:,} known")
    if taken.changed:
        parts.append(f"{taken.changed:,} cells changed")
    return ", ".join(parts)


async def _schema(app: App, collection_id: CollectionId) -> Schema:
    async with app.pool.connection() as connection:
        return await Definitions(connection).load_schema(collection_id)
