"""The HTTP API over an opened `App`."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from dataclasses import asdict
from typing import Annotated, Any, Final

from fastapi import FastAPI, Header, Request
from fastapi.responses import JSONResponse, StreamingResponse

from everfill.app import App
from everfill.autofill.progress import Progress, read_progress
from everfill.kernel.errors import (
    ConflictError,
    EverfillError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    ProviderFailedError,
    UnavailableError,
)
from everfill.kernel.ids import CollectionId
from everfill.tables.definitions import Definitions

__all__ = ["make_api", "status_of"]

_FRAME_WAIT_SECONDS: Final = 0.5
_WAITS_PER_COUNT: Final = 10  # an exact count at least every five seconds, frames or none
_STATUS: Final[tuple[tuple[type[EverfillError], int], ...]] = (
    (InvalidError, 422),
    (NotFoundError, 404),
    (ConflictError, 409),
    (ForbiddenError, 403),
    (UnavailableError, 503),
    (ProviderFailedError, 502),
)


def status_of(error: EverfillError) -> int:
    """The HTTP status of an error's family."""
    return next((status for family, status in _STATUS if isinstance(error, family)), 500)


def make_api(app: App) -> FastAPI:
    """The routes, over an `App` that outlives them."""
    api = FastAPI(title="Everfill", docs_url=None, redoc_url=None)
    api.add_exception_handler(EverfillError, _tell)

    @api.get("/healthz")
    async def healthz() -> dict[str, str]:  # pyright: ignore[reportUnusedFunction] - a route
        async with app.pool.connection() as connection:
            await connection.execute(b"select 1")
        return {"status": "ok"}

    @api.get("/v1/collections")
    async def collections() -> list[dict[str, Any]]:  # pyright: ignore[reportUnusedFunction]
        async with app.pool.connection() as connection:
            found = await Definitions(connection).list_collections()
        return [
            {"collection_id": item.collection_id, "namespace": item.namespace, "name": item.name}
            for item in found
        ]

    @api.get("/v1/collections/{collection_id}/progress")
    async def progress(  # pyright: ignore[reportUnusedFunction] - a route
        collection_id: int,
    ) -> dict[str, Any]:
        return _as_data(await _count(app, CollectionId(collection_id)))

    @api.get("/v1/collections/{collection_id}/events")
    async def events(  # pyright: ignore[reportUnusedFunction] - a route
        collection_id: int, last_event_id: Annotated[str | None, Header()] = None
    ) -> StreamingResponse:
        key = CollectionId(collection_id)
        first = _as_data(await _count(app, key))
        stream = _events(app, key, first, last_event_id or "$")
        return StreamingResponse(stream, media_type="text/event-stream")

    return api


async def _tell(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, EverfillError), "the handler of that family"
    body = {"code": error.code, "message": error.message, "hint": error.hint}
    return JSONResponse(body, status_code=status_of(error))


async def _events(
    app: App, collection_id: CollectionId, first: dict[str, Any], after: str
) -> AsyncGenerator[str, None]:
    """Exact counts at the start and every few seconds, and a frame for each batch between."""
    yield _event("progress", first)
    waits = 0
    while True:
        frames = await app.bus.frames(collection_id, after, block_seconds=_FRAME_WAIT_SECONDS)
        for after, frame in frames:  # noqa: PLR1704 - the last frame is where to go on
            yield _event("frame", {"counts": frame.counts, "cost_usd": frame.cost_usd}, after)
        waits += 1
        if waits % _WAITS_PER_COUNT == 0:
            yield _event("progress", _as_data(await _count(app, collection_id)))


def _event(name: str, data: dict[str, Any], event_id: str | None = None) -> str:
    head = f"id: {event_id}\n" if event_id else ""
    return f"{head}event: {name}\ndata: {json.dumps(data)}\n\n"


async def _count(app: App, collection_id: CollectionId) -> Progress:
    async with app.pool.connection() as connection:
        schema = await Definitions(connection).load_schema(collection_id)
    names = {column.column_id: column.name for column in schema.computed}
    return await read_progress(app.pool, collection_id, names)


def _as_data(counts: Progress) -> dict[str, Any]:
    return {
        "rows": counts.rows,
        "cells": dict(counts.total),
        "unsettled": counts.unsettled,
        "columns": [{"name": c.name, "cells": dict(c.counts)} for c in counts.columns],
        "spending": asdict(counts.spending),
    }
