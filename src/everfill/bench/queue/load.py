"""Makes the cells of a queue benchmark, and queues them the way a bulk run does."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Final

from everfill.autofill.queue import ColumnSignal, Queue
from everfill.infra.postgres import Pool, load_queries
from everfill.kernel import limits
from everfill.kernel.ids import CollectionId, ColumnId, RowId, RunId

__all__ = ["QUERIES", "Load", "make_load", "read_number"]

QUERIES: Final = load_queries("everfill.bench.queue", "load.sql")
_DISPATCHERS: Final = 2
_VACUUM: Final = b"vacuum (analyze) queue, rows, collections, columns, lanes, lane_tails"
"""What autovacuum would have done by the time somebody drains a queue this deep; no statement that
could be prepared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    """One collection, and the run that queued its cells."""

    collection_id: CollectionId
    column_id: ColumnId
    run_id: RunId
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What was queued, and at what price."""

    cells: int
    dispatch_cells_per_second: float
    dispatch_wal_bytes: float
    queue_bytes: float
    """Of the last two: a cell."""


async def make_load(pool: Pool, *, cells: int, collections: int, namespaces: int) -> Load:
    """Queue cells of as many collections, evenly, with an ordinary installation's caps on."""
    tables = await _make_tables(pool, cells, collections, namespaces)
    before = await read_number(pool, "written")
    started = time.perf_counter()
    todo = list(tables)
    await asyncio.gather(*(_dispatch(pool, todo) for _ in range(_DISPATCHERS)))
    seconds = time.perf_counter() - started
    queued = sum(table.rows for table in tables)
    written = await read_number(pool, "written") - before
    async with pool.connection() as connection:
        await connection.execute(_VACUUM)
    return Load(
        cells=queued,
        dispatch_cells_per_second=queued / seconds,
        dispatch_wal_bytes=written / queued,
        queue_bytes=await read_number(pool, "sizes") / queued,
    )


async def _make_tables(pool: Pool, cells: int, collections: int, namespaces: int) -> list[_Table]:
    async with pool.connection() as connection:
        cursor = await connection.execute(
            QUERIES["make_namespaces"],
            {"namespaces": namespaces, "cap_cells": limits.NAMESPACE_CAP_CELLS},
        )
        owners = [row[0] for row in await cursor.fetchall()]
    rows = -(-cells // collections)
    return [
        await _make_table(pool, f"bench-{n}", owners[n % namespaces], rows)
        for n in range(collections)
    ]


async def _make_table(pool: Pool, name: str, namespace_id: int, rows: int) -> _Table:
    params = {
        "name": name,
        "namespace_id": namespace_id,
        "rows": rows,
        "cap_cells": limits.COLLECTION_CAP_CELLS,
    }
    async with pool.connection() as connection:
        cursor = await connection.execute(QUERIES["make_collection"], params)
        ((collection_id, column_id),) = await cursor.fetchall()
        params = {"collection_id": collection_id, "column_id": column_id, "rows": rows}
        cursor = await connection.execute(QUERIES["make_run"], params)
        ((run_id,),) = await cursor.fetchall()
    return _Table(collection_id=collection_id, column_id=column_id, run_id=run_id, rows=rows)


async def _dispatch(pool: Pool, todo: list[_Table]) -> None:
    """Queue the cells of tables, one chunk a transaction, until none is left to do."""
    queue = Queue(pool)
    while todo:
        table = todo.pop()
        signal = ColumnSignal(column_id=table.column_id, cost_class="instant", explicit=True)
        for first in range(1, table.rows + 1, limits.DISPATCH_CHUNK_CELLS):
            last = min(first + limits.DISPATCH_CHUNK_CELLS, table.rows + 1)
            rows = [RowId(row) for row in range(first, last)]
            async with pool.connection() as connection, connection.transaction():
                await queue.lock(connection, table.collection_id)
                await queue.signal(
                    connection, table.collection_id, rows, [signal], run_id=table.run_id
                )


async def read_number(pool: Pool, query: str) -> int:
    """The one number that a query of this folder gives."""
    async with pool.connection() as connection:
        cursor = await connection.execute(QUERIES[query])
        ((number,),) = await cursor.fetchall()
    return int(number)
