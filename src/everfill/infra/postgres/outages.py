"""A lost or restarting Postgres, and how to wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import psycopg
import structlog
from psycopg_pool import PoolTimeout

from everfill.kernel.errors import UnavailableError

__all__ = ["OUTAGES", "pass_cancellation", "persist", "unavailable"]

OUTAGES: Final = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    psycopg.errors.IdleInTransactionSessionTimeout,  # this machine slept inside a transaction
    PoolTimeout,
)
"""What it looks like; none of it is the fault of what was asked."""


def unavailable(error: Exception) -> UnavailableError:
    """What to tell of a Postgres that does not answer."""
    if isinstance(error, psycopg.errors.DiskFull):
        return UnavailableError(
            "disk_full",
            f"Postgres has no room left on its disk: {str(error).strip().rstrip('.')}.",
            hint="Free some space and run the same command again: it resumes.",
        )
    detail = str(error).strip().rstrip(".") or type(error).__name__
    return UnavailableError(
        "postgres_unavailable",
        f"Postgres does not answer: {detail}.",
        hint="Run `everfill doctor`, or correct EVERFILL_POSTGRES__URL.",
    )


def pass_cancellation() -> None:
    """End the running task where it was cancelled; for who goes on after an outage.

    A statement that is cancelled on its way may end as an outage instead, while its transaction or
    pipeline is being closed: whoever goes on after that never ends.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


_PAUSE_SECONDS: Final = 0.5
_LOG: Final = structlog.stdlib.get_logger()
_T = TypeVar("_T")


async def persist(call: Callable[[], Awaitable[_T]], *, patience_seconds: float = 60.0) -> _T:
    """The answer to a call that may be repeated, tried again through an outage.

    Raises:
        UnavailableError: `postgres_unavailable`, after `patience_seconds` without an answer;
            `disk_full` at once, for waiting frees no disk.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + patience_seconds
    while True:
        try:
            return await call()
        except OUTAGES as error:
            pass_cancellation()
            if loop.time() >= deadline or isinstance(error, psycopg.errors.DiskFull):
                raise unavailable(error) from error
            _LOG.info("postgres.outage", error=str(error))
            await asyncio.sleep(_PAUSE_SECONDS)
