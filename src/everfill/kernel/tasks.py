"""How asyncio tasks are ended, and work is overlapped."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from typing import Any, Final, TypeVar

__all__ = ["end_tasks", "one_ahead"]

T = TypeVar("T")

_AGAIN_SECONDS: Final = 6.0
"""Longer than psycopg cleans up after a cancelled statement (5 s): a connection whose clean-up is
cancelled as well goes back to nobody, with the locks that it holds."""


async def end_tasks(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks until every one has ended; what they end with is dropped.

    Whoever is cancelled meanwhile still sees them end, and is cancelled then: a task that nobody
    waits for any more would go on, and renew the leases of a worker that is gone.

    Once is not enough: the `asyncio.wait_for` of Python 3.11, under every statement that psycopg
    runs, swallows a cancellation that comes just as what it waited for is done.
    """
    left = set(tasks)
    cancelled: asyncio.CancelledError | None = None
    while left:
        for task in left:
            task.cancel()
        try:
            await asyncio.wait(left, timeout=_AGAIN_SECONDS)
        except asyncio.CancelledError as error:  # whoever ends others first sees them end
            cancelled = error
        done = {task for task in left if task.done()}
        left -= done
        await asyncio.gather(*done, return_exceptions=True)
    if cancelled:
        raise cancelled


async def one_ahead(items: AsyncIterator[T]) -> AsyncGenerator[T, None]:
    """The same items; while one is used, the next one is on its way.

    What getting an item raises is raised once the one before has been used.
    """

    async def following() -> list[T]:
        async for item in items:
            return [item]
        return []

    coming = asyncio.create_task(following())
    try:
        while found := await coming:
            coming = asyncio.create_task(following())
            yield found[0]
    finally:
        await end_tasks([coming])
