"""`everfill reprocess`: compute values anew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Final

import typer

from everfill.app import App, open_app
from everfill.autofill.dispatch import Only, Request
from everfill.autofill.progress import list_failures, list_waits
from everfill.cli.console import (
    AsJson,
    DataDir,
    counted,
    err,
    print_json,
    run,
    settings_of,
    tell_queued,
)
from everfill.cli.exit_codes import ExitCode
from everfill.cli.naming import CollectionName, find_collection
from everfill.cli.trouble import tell_trouble
from everfill.cli.watching import Meter, dispatch_after_others, dispatch_until_settled
from everfill.cli.workers import start_workers
from everfill.kernel.config import Settings
from everfill.kernel.errors import InvalidError, NotFoundError
from everfill.kernel.ids import CollectionId, ColumnId, RowId
from everfill.tables.cells import Cells
from everfill.tables.definitions import Definitions
from everfill.tables.schema import Schema

__all__ = ["reprocess"]

_DRAIN_SECONDS: Final = 10.0


def reprocess(
    collection: CollectionName,
    column: Annotated[list[str] | None, typer.Option("--column", "-c")] = None,
    only: Annotated[
        str | None,
        typer.Option("--only", help="failed, outdated, not-found, empty or unfinished cells only."),
    ] = None,
    row: Annotated[list[int] | None, typer.Option("--row", help="These rows only.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Start workers, and wait.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Discard computed values and compute them anew, with what depends on them."""

    async def work() -> int:
        settings = settings_of(data_dir)
        async with open_app(settings, name="everfill-reprocess") as app:
            found, schema = await find_collection(app, collection)
            status_only = _only(only)
            columns = [schema.get(name).column_id for name in column] if column else None
            rows = await _rows(app, found.collection_id, row) if row else None
            if rows is None and status_only is None and not yes:
                what = ", ".join(column) if column else "every computed column"
                typer.confirm(f"Compute {what} of {collection} anew?", abort=True, err=True)
            request = Request(
                collection_id=found.collection_id,
                columns=columns,
                rows=rows,
                only=status_only,
                force=True,
                author="person:cli",
            )
            if wait:
                return await _settle(app, settings, collection, schema, request, as_json=as_json)
            dispatched = await dispatch_after_others(app, request)
            if as_json:
                print_json(asdict(dispatched))
            else:
                tell_queued(dispatched.cells - dispatched.filled, filled=dispatched.filled)
        return ExitCode.DONE

    run(work())


async def _settle(
    app: App,
    settings: Settings,
    collection: str,
    schema: Schema,
    request: Request,
    *,
    as_json: bool,
) -> ExitCode:
    """Dispatch, with workers beside, until nothing is unsettled, and tell how it ended."""
    async with start_workers(
        settings, cell_workers=settings.worker.processes, drain_seconds=_DRAIN_SECONDS
    ) as needed:
        needed.set()
        with Meter() as meter:
            dispatched = await dispatch_until_settled(app, schema, request, meter)
    async with app.pool.connection() as connection:  # somebody may have changed it meanwhile
        schema = await Definitions(connection).load_schema(schema.collection_id)
    names = _names_below(schema, request.columns)
    failures = await list_failures(app.pool, schema.collection_id, names, request.rows)
    waits = await list_waits(app.pool, schema.collection_id, names, request.rows)
    if as_json:
        told = asdict(dispatched) | {
            "failures": [asdict(item) for item in failures],
            "waits": [asdict(item) for item in waits],
        }
        print_json(told)
    else:
        err.print(f"{counted(dispatched.cells, 'cell')} settled.")
    again = f"with `everfill reprocess {collection} --only failed --wait`"
    return tell_trouble(failures, waits, again=again)


def _names_below(schema: Schema, columns: Sequence[ColumnId] | None) -> dict[ColumnId, str]:
    """The computed columns that a request names, and those that depend on them."""
    reached = set(schema.ids.values()) if columns is None else set(columns)
    names: dict[ColumnId, str] = {}
    for column in schema.computed:
        if column.column_id in reached or reached.intersection(column.upstreams):
            reached.add(column.column_id)
            names[column.column_id] = column.name
    return names


async def _rows(app: App, collection_id: CollectionId, numbers: Sequence[int]) -> list[RowId]:
    rows = [RowId(number) for number in numbers]
    async with app.pool.connection() as connection:
        existing = await Cells(connection, app.blobs).existing_rows(collection_id, rows)
    if missing := [str(row) for row in rows if row not in existing]:
        raise NotFoundError("row_unknown", f"There is no row {', '.join(missing)}.")
    return rows


def _only(text: str | None) -> Only | None:
    if text is None:
        return None
    try:
        return Only(text.replace("-", "_"))
    except ValueError:
        known = ", ".join(item.replace("_", "-") for item in Only)
        raise InvalidError(
            "only_unknown", f"--only {text!r} is not known.", hint=f"It is one of {known}."
        ) from None
