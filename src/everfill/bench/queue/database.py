"""A fresh database for each subject, so that none inherits another's bloat."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final
from uuid import uuid4

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

__all__ = ["fresh_database"]

_PREFIX: Final = "everfill_bench_"


@asynccontextmanager
async def fresh_database(server_url: str) -> AsyncGenerator[str, None]:
    """The URL of an empty database, which is dropped with the context."""
    name = _PREFIX + uuid4().hex[:8]
    await _execute(server_url, sql.SQL("create database {}").format(sql.Identifier(name)))
    try:
        yield make_conninfo(server_url, dbname=name)
    finally:
        drop = sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name))
        await _execute(server_url, drop)


async def _execute(url: str, statement: sql.Composed) -> None:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute(statement)
        await connection.execute("checkpoint")
