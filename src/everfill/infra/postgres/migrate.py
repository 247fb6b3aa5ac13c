"""Forward-only migrations, each a numbered `.sql` file and one transaction.

Runners on several machines are serialised by an advisory lock. A file that changed after it ran is
refused: the installation would no longer be what the files say.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib import resources
from typing import Final

import psycopg

from everfill.infra.postgres.outages import unavailable
from everfill.infra.postgres.pool import SCHEMA, Connection
from everfill.kernel.errors import ConflictError

__all__ = ["migrate"]

_LOCK_KEY: Final = 0x45564D49  # an advisory lock of the migrations alone


@dataclass(frozen=True, slots=True, kw_only=True)
class _Migration:
    name: str
    sql: bytes

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.sql).hexdigest()


async def migrate(url: str) -> list[str]:
    """Bring the database up to date and return the names of the files that ran.

    Raises:
        ConflictError: `migration_changed`, a file differs from the one that ran here.
        UnavailableError: `postgres_unavailable`.
    """
    try:
        opened = await psycopg.AsyncConnection.connect(url, autocommit=True)
    except psycopg.OperationalError as error:
        raise unavailable(error) from error
    async with opened as connection:
        await connection.execute("select pg_advisory_lock(%s)", [_LOCK_KEY])
        await connection.execute(f"create schema if not exists {SCHEMA}".encode())
        await connection.execute(f"set search_path = {SCHEMA}, public".encode())
        done = await _done(connection)
        ran: list[str] = []
        for migration in _migrations():
            known = done.get(migration.name)
            if known is None:
                await _run(connection, migration)
                ran.append(migration.name)
            elif known != migration.checksum:
                raise ConflictError(
                    "migration_changed",
                    f"Migration {migration.name} is not the one this database ran.",
                    hint="Install the release that made this database, or a newer one.",
                )
        return ran


def _migrations() -> list[_Migration]:
    folder = resources.files("everfill.infra.postgres").joinpath("migrations")
    files = sorted(
        (item for item in folder.iterdir() if item.name.endswith(".sql")),
        key=lambda item: item.name,
    )
    return [_Migration(name=item.name, sql=item.read_bytes()) for item in files]


async def _done(connection: Connection) -> dict[str, str]:
    await connection.execute(
        "create table if not exists migrations ("
        " name text primary key, checksum text not null,"
        " ran_at timestamptz not null default now())"
    )
    cursor = await connection.execute("select name, checksum from migrations")
    return dict(await cursor.fetchall())


async def _run(connection: Connection, migration: _Migration) -> None:
    async with connection.transaction():
        await connection.execute(migration.sql)
        await connection.execute(
            "insert into migrations (name, checksum) values (%s, %s)",
            [migration.name, migration.checksum],
        )
