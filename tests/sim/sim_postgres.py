"""A server in memory that answers the statements of the real repositories, and loses connections.

The seam is the connection: the production code runs unchanged above it and sends its own
statements, which are looked up by their text. A statement that was sent is carried out whether or
not its sender lives; what is lost is its answer. Locks are held to the end of a transaction and
waited for in order.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol, Self, TypeAlias

import psycopg
from psycopg_pool import PoolTimeout
from sim_loop import PROCESS, Process, SimLoop
from sim_rows import GONE, Database, Transaction

Rows: TypeAlias = "list[tuple[Any, ...]]"
Params: TypeAlias = "dict[str, Any]"

START: Final = datetime(2026, 1, 1, tzinfo=UTC)
_PATIENCE_SECONDS: Final = 30.0


@dataclass(frozen=True)
class Statement:
    """What a statement does, and the locks that it takes first, in order."""

    name: str
    run: Callable[[Transaction, Params], Rows]
    locks: Callable[[Transaction, Params], Sequence[object]] | None = None


STATEMENTS: dict[bytes, Statement] = {}


def statement(
    queries: Any,
    name: str,
    locks: Callable[[Transaction, Params], Sequence[object]] | None = None,
) -> Callable[[Callable[[Transaction, Params], Rows]], Callable[[Transaction, Params], Rows]]:
    """Make a function the meaning of a query."""

    def register(run: Callable[[Transaction, Params], Rows]) -> Callable[..., Rows]:
        STATEMENTS[queries[name]] = Statement(name, run, locks)
        return run

    return register


class Observer(Protocol):
    """Sees every statement and every commit, and hears of faults."""

    def executed(self, process: str, name: str, rows: Rows) -> None: ...

    def committed(self, transaction: Transaction) -> None: ...

    def fail(self, message: str) -> None: ...


@dataclass
class Faults:
    """Chances of what goes wrong on the way, per statement."""

    lost_before: float = 0.0
    lost_after: float = 0.0
    lag: float = 0.0
    lag_seconds: float = 0.0


@dataclass(eq=False)
class Job:
    """A statement on the server."""

    connection: SimConnection
    statement: Statement
    params: Params
    reply: asyncio.Future[Rows]
    transaction: Transaction | None = None
    waits_for: object = None
    abandoned: bool = False
    """Its sender gave up and rolled back."""
    ran: bool = False


_BEGIN: Final = Statement("begin", lambda *_: [])
_COMMIT: Final = Statement("commit", lambda *_: [])
_SAVE: Final = Statement("savepoint", lambda tx, _: tx.save())
_KEEP: Final = Statement("release savepoint", lambda tx, _: tx.keep())
_UNDO: Final = Statement("rollback to savepoint", lambda tx, _: tx.undo())
_LISTEN: Final = Statement("listen", lambda *_: [])


def _refuse(_transaction: Transaction, _params: Params) -> Rows:
    message = "a statement before this one failed"
    raise psycopg.errors.InFailedSqlTransaction(message)


@dataclass(eq=False)
class _Lock:
    holder: Transaction
    waiting: deque[Job] = field(default_factory=deque)


class Server:
    """The database server of one simulation."""

    def __init__(self, loop: SimLoop, chance: random.Random, observer: Observer) -> None:
        self.loop = loop
        self.chance = chance
        self.observer = observer
        self.database = Database()
        self.faults = Faults()
        self.offset_seconds = 0.0
        self.down = False
        self._locks: dict[object, _Lock] = {}
        self._connections: dict[SimConnection, None] = {}

    def now(self) -> datetime:
        """The server's clock, which people may set."""
        return START + timedelta(seconds=self.loop.time() + self.offset_seconds)

    # -- connections ------------------------------------------------------------------------------

    def connect(self) -> SimConnection:
        connection = SimConnection(self, PROCESS.get())
        self._connections[connection] = None
        return connection

    def forget(self, connection: SimConnection) -> None:
        self._connections.pop(connection, None)

    def cut(self, process: Process | None = None) -> None:
        """Break the connections of a process, or all."""
        for connection in list(self._connections):
            if process is None or connection.process is process:
                self.break_(connection, at_once=process is None)

    def break_(self, connection: SimConnection, *, at_once: bool = True) -> None:
        """Break a connection; without `at_once` the statement it has sent is still carried out."""
        connection.broken = True
        job = connection.job
        if job is None or job.ran or at_once:
            self.roll_back(connection)
            if job:
                self._answer(job, None)
        connection.hang_up()

    def roll_back(self, connection: SimConnection) -> None:
        """End whatever transaction a connection has open, without its writes."""
        transactions = {connection.open, connection.job and connection.job.transaction}
        connection.open = None
        for transaction in transactions - {None}:
            assert transaction is not None
            self._end(transaction)

    # -- statements -------------------------------------------------------------------------------

    def send(
        self, connection: SimConnection, what: Statement, params: Params
    ) -> asyncio.Future[Rows]:
        """Send a statement; the future is its answer."""
        job = Job(connection, what, params, self.loop.create_future())
        assert connection.job is None, "one statement at a time"
        connection.job = job
        self.loop.call_later(self._lag(), self._arrive, job, context=self.loop.server_context)
        return job.reply

    def _lag(self) -> float:
        if self.faults.lag and self.chance.random() < self.faults.lag:
            return self.chance.uniform(0.0, self.faults.lag_seconds)
        return self.chance.uniform(0.0, 0.004)

    def _arrive(self, job: Job) -> None:
        connection = job.connection
        if job.abandoned:
            self._finish(job)
            return
        lost = self.down or self.chance.random() < self.faults.lost_before
        if lost or (connection.broken and connection.job is not job):
            self.break_(connection)
            return
        job.transaction = connection.open or Transaction(self.database, self.now())
        if job.transaction.open:
            self._proceed(job)
        else:
            self._answer(job, None)

    def _proceed(self, job: Job) -> None:
        """Take the locks of a statement one by one, waiting where one is taken; then run it."""
        transaction = job.transaction
        assert transaction is not None
        job.waits_for = None
        keys = job.statement.locks(transaction, job.params) if job.statement.locks else ()
        for key in keys:
            lock = self._locks.get(key)
            if lock is None:
                self._locks[key] = _Lock(transaction)
                transaction.locks.append(key)
            elif lock.holder is not transaction:
                lock.waiting.append(job)
                job.waits_for = key
                self._check_deadlock(job)
                return
        self._run(job, transaction)

    def _check_deadlock(self, job: Job) -> None:
        waiting = {lock_job.transaction: lock_job for lock_job in self._waiting()}
        seen: list[Job] = []
        found: Job | None = job
        while found is not None and found not in seen:
            seen.append(found)
            found = waiting.get(self._locks[found.waits_for].holder)
        if found is job:
            names = [f"{j.statement.name} for {j.waits_for}" for j in seen]
            self.observer.fail(f"deadlock: {names}")

    def _waiting(self) -> list[Job]:
        return [job for lock in self._locks.values() for job in lock.waiting]

    def _run(self, job: Job, transaction: Transaction) -> None:
        rows: Rows | None = None
        job.ran = True
        run = job.statement.run
        if transaction.spoilt and job.statement is not _UNDO:
            run = _refuse
        try:
            rows = run(transaction, job.params)
        except psycopg.Error as error:
            transaction.spoilt = True
            self._answer(job, error)
        except Exception as error:  # noqa: BLE001 - a broken rule ends the run, with its seed
            self.observer.fail(f"{job.statement.name} broke the rules: {error!r}")
            self._answer(job, psycopg.ProgrammingError(repr(error)))
        process = job.connection.process
        self.observer.executed(process.name if process else "-", job.statement.name, rows or [])
        if job.statement is _BEGIN:
            job.connection.open = transaction
        elif job.connection.open is None or job.statement is _COMMIT:
            self._end(transaction, commit=rows is not None)
            job.connection.open = None
        if job.connection.broken:  # its sender has died meanwhile
            self.roll_back(job.connection)
            self._finish(job)
        elif rows is not None and self.chance.random() < self.faults.lost_after:
            self.break_(job.connection)
        elif rows is not None:
            context = self.loop.server_context
            self.loop.call_later(self._lag(), self._reply, job, rows, context=context)

    def _reply(self, job: Job, rows: Rows) -> None:
        self._finish(job)
        if not job.reply.done():
            job.reply.set_result(rows)

    def _answer(self, job: Job, error: Exception | None) -> None:
        self._finish(job)
        if not job.reply.done():
            job.reply.set_exception(error or psycopg.OperationalError("the connection is lost"))

    def _finish(self, job: Job) -> None:
        if job.connection.job is job:
            job.connection.job = None

    # -- the ends of transactions -----------------------------------------------------------------

    def _end(self, transaction: Transaction, *, commit: bool = False) -> None:
        if not transaction.open:
            return
        transaction.open = False
        if commit:
            self._commit(transaction)
        for lock in self._locks.values():
            if any(job.transaction is transaction for job in lock.waiting):
                kept = [job for job in lock.waiting if job.transaction is not transaction]
                lock.waiting = deque(kept)
        for key in transaction.locks:
            lock = self._locks[key]
            if not lock.waiting:
                del self._locks[key]
                continue
            job = lock.waiting.popleft()
            assert job.transaction is not None
            lock.holder = job.transaction
            job.transaction.locks.append(key)
            self.loop.call_soon(self._resume, job, context=self.loop.server_context)

    def _resume(self, job: Job) -> None:
        if job.transaction and job.transaction.open:
            self._proceed(job)

    def _commit(self, transaction: Transaction) -> None:
        before = {
            table: {key: self.database.tables[table].get(key) for key in rows}
            for table, rows in transaction.writes.items()
        }
        for table, rows in transaction.writes.items():
            target = self.database.tables[table]
            for key, row in rows.items():
                if row is GONE:
                    target.pop(key, None)
                else:
                    target[key] = row
        transaction.told.append(("before", before))
        self.observer.committed(transaction)
        if transaction.notified:
            for connection in list(self._connections):
                connection.wake()


@dataclass(frozen=True)
class SimCursor:
    """The answer to a statement."""

    rows: Rows

    @property
    def rowcount(self) -> int:
        return len(self.rows)

    async def fetchall(self) -> Rows:
        return self.rows

    async def fetchone(self) -> tuple[Any, ...] | None:
        return self.rows[0] if self.rows else None


@dataclass
class SimCopy:
    """What is being copied in."""

    parts: list[str] = field(default_factory=list)

    async def write(self, text: str) -> None:
        self.parts.append(text)


class SimConnection:
    """One client's connection, as the repositories use it."""

    def __init__(self, server: Server, process: Process | None) -> None:
        self.server = server
        self.process = process
        self.broken = False
        self.open: Transaction | None = None
        self.job: Job | None = None
        self._listening: asyncio.Event | None = None
        self._pipelined = self._implicit = False

    async def execute(self, query: bytes, params: Params | None = None) -> SimCursor:
        if self._pipelined and self.open is None:
            await self._send(_BEGIN, {})
            self._implicit = True
        what = _LISTEN if query.startswith(b"listen") else STATEMENTS[query]
        rows = await self._send(what, params or {})
        if what is _LISTEN:
            self._listening = asyncio.Event()
        return SimCursor(rows)

    async def _send(self, what: Statement, params: Params) -> Rows:
        if self.server.loop.buried:
            raise asyncio.CancelledError
        if self.broken:
            raise psycopg.OperationalError("the connection is closed")
        return await self.server.send(self, what, params)

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[None, None]:
        if self.open:
            async with self._savepoint():
                yield
            return
        await self._send(_BEGIN, {})
        try:
            yield
            await self._send(_COMMIT, {})
        finally:
            if self.job:
                self.job.abandoned = True
            self.server.roll_back(self)

    @asynccontextmanager
    async def _savepoint(self) -> AsyncGenerator[None, None]:
        """A transaction within one: what it did is undone where it ends in an error."""
        await self._send(_SAVE, {})
        try:
            yield
        except Exception:
            if not self.broken:
                await self._send(_UNDO, {})
            raise
        await self._send(_KEEP, {})

    def cursor(self) -> Self:
        """A connection serves as its own cursor."""
        return self

    @asynccontextmanager
    async def copy(self, query: bytes) -> AsyncGenerator[SimCopy, None]:
        """Rows as lines of text; they are sent at the end."""
        copy = SimCopy()
        yield copy
        await self._send(STATEMENTS[query], {"text": "".join(copy.parts)})

    @asynccontextmanager
    async def pipeline(self) -> AsyncGenerator[None, None]:
        """What is sent between two syncs is one transaction, without a word of it."""
        self._pipelined = True
        try:
            yield
            if self._implicit:
                await self._send(_COMMIT, {})
        finally:
            if self._implicit:
                if self.job:
                    self.job.abandoned = True
                self.server.roll_back(self)
            self._pipelined = self._implicit = False

    async def close(self) -> None:
        """Hang up; what was sent is still carried out."""
        self.server.break_(self, at_once=False)

    # -- notifications ----------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.server.forget(self)

    async def notifies(self) -> AsyncIterator[None]:
        assert self._listening, "listens first"
        while True:
            await self._listening.wait()
            self._listening.clear()
            if self.broken:
                raise psycopg.OperationalError("the connection is lost")
            yield None

    def wake(self) -> None:
        if self._listening:
            self._listening.set()

    def hang_up(self) -> None:
        self.wake()
        self.server.forget(self)


class SimPool:
    """Connections of one process."""

    def __init__(self, server: Server) -> None:
        self.conninfo = "simulated"
        self._server = server
        self._idle: list[SimConnection] = []

    @asynccontextmanager
    async def connection(self) -> AsyncGenerator[SimConnection, None]:
        connection = await self._take()
        try:
            yield connection
        finally:
            if not connection.broken and connection.job is None:
                self._idle.append(connection)
            else:
                self._server.forget(connection)

    async def _take(self) -> SimConnection:
        deadline = self._server.loop.time() + _PATIENCE_SECONDS
        while self._server.down:
            if self._server.loop.time() >= deadline:
                raise PoolTimeout("no connection in time")
            await asyncio.sleep(0.5)
        self._idle = [connection for connection in self._idle if not connection.broken]
        return self._idle.pop() if self._idle else self._server.connect()
