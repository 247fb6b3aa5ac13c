"""Fixtures that every test may use: one embedded stack a session, one database a test."""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator
from pathlib import Path

import psycopg
import pytest
import pytest_asyncio
from psycopg import sql
from psycopg.conninfo import make_conninfo

from everfill.autofill.queue import Queue
from everfill.infra.postgres import Pool, migrate, open_pool
from everfill.infra.stack import Endpoints, open_stack
from everfill.kernel.config import Settings

_numbers = itertools.count(1)
_TEMPLATE = "everfill_template"


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def stack(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Endpoints]:
    """Real servers for the whole session (outside ones where the environment names them)."""
    data_dir = Path(os.environ.get("TEST_STACK_DATA_DIR") or tmp_path_factory.mktemp("stack"))
    async with open_stack(Settings(data_dir=data_dir)) as endpoints:
        yield endpoints


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def template(stack: Endpoints) -> str:
    """The name of a migrated, empty database on the session's server."""
    name = f"{_TEMPLATE}_{os.getpid()}"
    await _execute(stack.postgres_url, "create database {}", name)
    await migrate(make_conninfo(stack.postgres_url, dbname=name))
    return name


@pytest_asyncio.fixture
async def database_url(stack: Endpoints, template: str) -> AsyncIterator[str]:
    """A fresh, migrated database for one test."""
    name = f"everfill_test_{os.getpid()}_{next(_numbers)}"
    await _execute(stack.postgres_url, "create database {} template {}", name, template)
    yield make_conninfo(stack.postgres_url, dbname=name)
    await _execute(stack.postgres_url, "drop database {} with (force)", name)


@pytest_asyncio.fixture
async def pool(database_url: str) -> AsyncIterator[Pool]:
    """Connections to the test's database."""
    async with open_pool(database_url) as opened:
        yield opened


@pytest.fixture
def queue(pool: Pool) -> Queue:
    """The queue of the test's database."""
    return Queue(pool)


async def _execute(url: str, statement: str, *names: str) -> None:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        quoted = [sql.Identifier(name) for name in names]
        await connection.execute(sql.SQL(statement).format(*quoted))
