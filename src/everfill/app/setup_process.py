"""The setup worker's process: it runs the workflows and the janitor."""

from __future__ import annotations

import asyncio

from everfill.app.wiring import open_app
from everfill.autofill.activities import Activities
from everfill.autofill.janitor import Janitor
from everfill.autofill.setup_worker import SetupWorker
from everfill.kernel.config import Settings

__all__ = ["run_setup_worker"]


async def run_setup_worker(settings: Settings, stop: asyncio.Event) -> None:
    """A setup worker as a process of its own.

    Args:
        settings: Its Temporal task queue and the janitor's tick.
        stop: Set by the signal that ends the process.
    """
    async with open_app(settings, name="everfill-setup-worker") as app:
        janitor = Janitor(app.pool, app.queue, app.dispatcher)
        activities = Activities(
            app.pool,
            app.queue,
            app.bus,
            janitor,
            app.announcer,
            tick_seconds=settings.janitor.tick_seconds,
        )
        await SetupWorker(settings, app.endpoints.temporal_address, activities).run(stop)
