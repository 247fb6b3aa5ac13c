"""The connection pool: async, tuples as rows, statements prepared at once, everything bounded."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Final, TypeAlias

import psycopg
from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from everfill.infra.postgres.outages import unavailable

__all__ = ["Connection", "Pool", "open_pool", "pipelined"]

Row: TypeAlias = "tuple[Any, ...]"
Connection: TypeAlias = "AsyncConnection[Row]"
Pool: TypeAlias = "AsyncConnectionPool[Connection]"

SCHEMA: Final = "everfill"
_SILENT_SECONDS: Final = 300.0
"""How long a client may be silent inside a transaction, longer than any upload of values takes: who
fell off the network there holds locks, and Postgres by itself notices that after two hours."""
_WAIT_SECONDS: Final = 30.0
_FRESH_SECONDS: Final = 1.0
"""A worker uses its connections many times a second; asking each time whether they live would
double its round trips, and whoever meets one that died tries again."""
_UNACKNOWLEDGED_MILLISECONDS: Final = 60_000
_KEEPALIVES: Final = {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3}
"""A server that fell off the network is noticed within a minute, even by who only listens."""
_SESSION: Final = {
    "search_path": f"{SCHEMA}, public",
    "idle_in_transaction_session_timeout": f"{_SILENT_SECONDS}s",
    **{f"tcp_{name}": str(value) for name, value in _KEEPALIVES.items()},
}
"""What the server is told: it notices a client that fell off the network likewise."""


class _PooledConnection(AsyncConnection[Row]):
    """A connection that knows when it was last given back."""

    used_at: float = 0.0


@asynccontextmanager
async def open_pool(
    url: str, *, size_max: int = 10, name: str = "everfill"
) -> AsyncGenerator[Pool, None]:
    """Open a pool; it closes with the context.

    Raises:
        UnavailableError: `postgres_unavailable`, where no connection could be made in time.
    """
    pool = AsyncConnectionPool[Connection](
        url,
        min_size=1,
        max_size=size_max,
        timeout=_WAIT_SECONDS,
        open=False,
        configure=_configure,
        check=_check,
        reset=_note_use,
        kwargs={
            "autocommit": True,
            "application_name": name,
            "prepare_threshold": 0,
            "tcp_user_timeout": _UNACKNOWLEDGED_MILLISECONDS,
            **_KEEPALIVES,
        },
        connection_class=_PooledConnection,
    )
    try:
        await pool.open(wait=True, timeout=_WAIT_SECONDS)
    except (PoolTimeout, psycopg.OperationalError) as error:
        await pool.close()
        raise unavailable(error) from error
    try:
        yield pool
    finally:
        await pool.close()


@asynccontextmanager
async def pipelined(pool: Pool) -> AsyncGenerator[Connection, None]:
    """A connection whose statements are sent without waiting for each other's answers.

    Whatever is sent outside `transaction()` is one transaction, to the end of the context. A
    connection that did not come to that end, cancelled or refused, is closed: the driver cannot
    tell what the server still has open, and the next one to borrow it would inherit that.
    """
    async with pool.connection() as connection:
        try:
            async with connection.pipeline():
                yield connection
        except BaseException:
            await connection.close()
            raise


async def _configure(connection: Connection) -> None:
    await connection.execute(
        b"select set_config(name, value, false)"
        b" from unnest(%s::text[], %s::text[]) as s (name, value)",
        [list(_SESSION), list(_SESSION.values())],
        prepare=False,
    )


async def _note_use(connection: Connection) -> None:
    assert isinstance(connection, _PooledConnection)
    connection.used_at = time.monotonic()


async def _check(connection: Connection) -> None:
    """Ask an idle connection whether it lives; one that was just used need not be asked."""
    assert isinstance(connection, _PooledConnection)
    if time.monotonic() - connection.used_at > _FRESH_SECONDS:
        await AsyncConnectionPool[Connection].check_connection(connection)
