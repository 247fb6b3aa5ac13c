"""The API's process."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import uvicorn

from everfill.api.http import make_api
from everfill.app import open_app
from everfill.kernel.config import Settings

__all__ = ["run_api"]


async def run_api(settings: Settings, stop: asyncio.Event) -> None:
    """Serve HTTP until `stop` is set; open event streams are cut.

    Raises:
        UnavailableError: A server that it needs does not answer.
    """
    async with open_app(settings, name="everfill-api") as app:
        config = uvicorn.Config(
            make_api(app),
            host=settings.api.host,
            port=settings.api.port,
            log_config=None,
            timeout_graceful_shutdown=1,
        )
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve())
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait([serving, stopping], return_when=asyncio.FIRST_COMPLETED)
        server.should_exit = True
        stopping.cancel()
        with suppress(asyncio.CancelledError):
            await serving
