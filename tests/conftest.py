"""Fixtures that every test may use: one embedded stack a session, one database a test."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import NoReturn

import psycopg
import pytest
import pytest_asyncio
from obstore.store import MemoryStore
from psycopg import sql
from psycopg.conninfo import make_conninfo

from engine import PLUGINS, Announced, Engine
from everfill.autofill.columns import ColumnKeeper
from everfill.autofill.dispatch import Dispatcher
from everfill.autofill.edits import Edits
from everfill.autofill.queue import Queue
from everfill.compute import registry
from everfill.infra.blobs import Blobs
from everfill.infra.postgres import Pool, migrate, open_pool
from everfill.infra.stack import Endpoints, open_stack
from everfill.kernel.config import Settings

_numbers = itertools.count(1)
_TEMPLATE = "everfill_template"
_leave = os._exit


def pytest_configure() -> None:
    """A test that runs a command in this process would end the session, with success."""
    session = os.getpid()

    def leave(code: int) -> NoReturn:
        if os.getpid() == session:
            raise AssertionError(f"A test ended the whole session, with code {code}.")
        _leave(code)

    os._exit = leave


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


@pytest.fixture
def counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file that the counting kinds write to, and those kinds installed."""
    path = tmp_path / "counted"
    monkeypatch.setenv("COUNTED_CALLS_FILE", str(path))
    monkeypatch.syspath_prepend(str(PLUGINS))
    registry.get_kind.cache_clear()
    registry._third_party.cache_clear()
    yield path
    registry.get_kind.cache_clear()
    registry._third_party.cache_clear()
    sys.modules.pop("everfill_test_kinds", None)


@pytest.fixture
def engine(pool: Pool, queue: Queue, counted: Path, tmp_path: Path) -> Engine:
    """Everfill over the test's database, whose workers the test makes."""
    blobs = Blobs(MemoryStore())
    dispatcher = Dispatcher(pool, queue, blobs, Announced())
    return Engine(
        pool=pool,
        queue=queue,
        blobs=blobs,
        dispatcher=dispatcher,
        edits=Edits(pool, queue, blobs, dispatcher),
        columns=ColumnKeeper(pool, queue),
        settings=Settings(data_dir=tmp_path),
        counted=counted,
    )


async def _execute(url: str, statement: str, *names: str) -> None:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        quoted = [sql.Identifier(name) for name in names]
        await connection.execute(sql.SQL(statement).format(*quoted))
