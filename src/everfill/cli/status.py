"""`everfill status`: how far collections are."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Annotated, Any, Final

import typer
from rich.markup import escape

from everfill.app import App, open_app
from everfill.autofill.progress import Progress, Watch, list_failures, read_progress
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
from everfill.cli.naming import find_collection
from everfill.cli.watching import counts_line
from everfill.tables.definitions import Definitions
from everfill.tables.schema import Collection, Schema

__all__ = ["status"]

_RATE_SECONDS: Final = 1.0  # between the two counts that make a rate


def status(
    collection: Annotated[str | None, typer.Argument(metavar="[COLLECTION]")] = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """How far a collection is (or all of them): counts, rate, time left, tokens, cost."""

    async def work() -> int:
        async with open_app(settings_of(data_dir), name="everfill-status") as app:
            if collection is None:
                await _status_of_all(app, as_json=as_json)
            else:
                await _status_of(app, collection, as_json=as_json)
        return ExitCode.DONE

    run(work())


async def _status_of_all(app: App, *, as_json: bool) -> None:
    async with app.pool.connection() as connection:
        definitions = Definitions(connection)
        found = await definitions.list_collections()
        schemas = [await definitions.load_schema(item.collection_id) for item in found]
    counted = [await _count(app, schema) for schema in schemas]
    if as_json:
        print_json([_as_data(*pair) for pair in zip(found, counted, strict=True)])
        return
    if not found:
        err.print("No collections yet. Make one with `everfill fill FILE --column …`.")
        return
    print_table(
        ["collection", "rows", "computed cells"],
        [
            [f"{escape(c.namespace)}/{escape(c.name)}", f"{p.rows:,}", counts_line(p)]
            for c, p in zip(found, counted, strict=True)
        ],
    )


async def _status_of(app: App, name: str, *, as_json: bool) -> None:
    collection, schema = await find_collection(app, name)
    counts, watch = await _count(app, schema), Watch()
    if counts.unsettled:
        loop = asyncio.get_running_loop()
        watch.add(loop.time(), counts.unsettled)
        await asyncio.sleep(_RATE_SECONDS)
        counts = await _count(app, schema)
        watch.add(loop.time(), counts.unsettled)
    lanes = await app.queue.backlog(collection.collection_id)
    names = {column.column_id: column.name for column in schema.computed}
    failures = await list_failures(app.pool, collection.collection_id, names)
    if as_json:
        print_json(
            _as_data(collection, counts)
            | {
                "cells_per_second": round(watch.cells_per_second, 1),
                "seconds_left": watch.seconds_left,
                "lanes": [asdict(lane) for lane in lanes],
                "failures": [asdict(item) for item in failures],
            }
        )
        return
    out.print(
        f"[bold]{escape(collection.namespace)}/{escape(collection.name)}[/]: "
        f"{counts.rows:,} rows, {counts_line(counts, watch)}"
    )
    _print_columns(counts)
    for lane in lanes:
        if lane.depth or lane.computing:
            kind = f"run {lane.run_id}" if lane.run_id else "interactive"
            paused = ", paused" if lane.paused else ""
            out.print(
                f"Lane {lane.lane_id} ({kind}, {lane.cost_class}{paused}): "
                f"{lane.depth:,} queued, {lane.computing:,} computing"
            )
    for item in failures:
        message = f": {escape(item.message)}" if item.message else ""
        out.print(f"[red]Failed:[/] {item.count:,} x {escape(item.column)}, {item.code}{message}")


def _print_columns(counts: Progress) -> None:
    states = [state for state, n in counts.total.items() if n]
    print_table(
        ["column", *(state.replace("_", " ") for state in states)],
        [
            [escape(column.name), *(f"{column.counts.get(state, 0):,}" for state in states)]
            for column in counts.columns
        ],
    )


def _as_data(collection: Collection, counts: Progress) -> dict[str, Any]:
    return {
        "collection": f"{collection.namespace}/{collection.name}",
        "collection_id": collection.collection_id,
        "rows": counts.rows,
        "cells": dict(counts.total),
        "unsettled": counts.unsettled,
        "columns": [{"name": c.name, "cells": dict(c.counts)} for c in counts.columns],
        "spending": asdict(counts.spending),
    }


async def _count(app: App, schema: Schema) -> Progress:
    names = {column.column_id: column.name for column in schema.computed}
    return await read_progress(app.pool, schema.collection_id, names)
