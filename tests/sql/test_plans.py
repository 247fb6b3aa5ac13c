"""The hot statements read by index, however deep the queue and whatever the planner believes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from filling import Filled, fill
from statements import explain, indexes, nodes, scanned

from everfill.autofill.progress import SNAPSHOT
from everfill.autofill.queue import QUERIES
from everfill.infra.postgres import Connection, Pool, load_queries
from everfill.kernel import limits

MODES = ["force_custom_plan", "force_generic_plan"]
STATISTICS = ["fresh", "of_an_empty_table", "of_an_emptied_queue", "none"]
BATCH = 200
PROGRESS = load_queries("everfill.autofill", "progress.sql")
IMMEDIATE = load_queries("everfill.autofill", "immediate.sql")


def claim_params() -> Mapping[str, Any]:
    return {
        "worker": "w",
        "lease_seconds": 60.0,
        "now": None,
        "bulk_share": limits.BULK_SHARE_OF_CAP,
        "lanes_max": limits.LANES_PER_CLAIM,
        "cost_classes": ["instant", "local"],
        "interactive_max": [BATCH, 20],
        "bulk_max": [BATCH, 20],
        "total_max": [BATCH, 20],
    }


def finalize_params(filled: Filled, count: int) -> Mapping[str, Any]:
    rows = list(range(1, count + 1))
    return {
        "collection_id": filled.collection_id,
        "now": None,
        "rounds_max": limits.DIRTY_ROUNDS_MAX,
        "tries_max": limits.TRIES_MAX,
        "ended": [1],
        "held": [1],
        "touched": [1],
        "claims": [1] * count,
        "rows": rows,
        "columns": [filled.columns[0]] * count,
        "lanes": [filled.lane_id] * count,
        "seqs": rows,
        "signals": [1] * count,
        "versions": [1] * count,
        "outcomes": ["ready"] * count,
        "values": ['"v"'] * count,
        "reasons": [None] * count,
        "provenances": [None] * count,
        "hashes": [b"1"] * count,
        "delays": [0.0] * count,
    }


def release_params(filled: Filled, count: int) -> Mapping[str, Any]:
    return {
        "collection_id": filled.collection_id,
        "rows": list(range(1, count + 1)),
        "columns": [filled.columns[0]] * count,
        "settled_rows": list(range(1, count + 1)),
        "settled_columns": [filled.columns[0]] * count,
    }


def signal_params(filled: Filled, count: int) -> Mapping[str, Any]:
    return {
        "collection_id": filled.collection_id,
        "interactive": True,
        "only": None,
        "rows": list(range(1, count + 1)),
        "columns": list(filled.columns),
        "lanes": [filled.lane_id] * 3,
        "forced": [False] * 3,
        "explicit": [True] * 3,
    }


def known_rows_params(filled: Filled, count: int) -> Mapping[str, Any]:
    return {
        "collection_id": filled.collection_id,
        "rows": list(range(1, count + 1)),
        "columns": list(filled.columns),
    }


async def plans(connection: Connection, filled: Filled) -> dict[str, dict[str, Any]]:
    found = {"claim": await explain(connection, QUERIES["claim"], claim_params())}
    for count in (1, min(BATCH, filled.rows // 100)):  # of a small table, reading it whole is right
        for name, params in (
            ("finalize", finalize_params(filled, count)),
            ("release", release_params(filled, count)),
            ("signal", signal_params(filled, count)),
        ):
            found[f"{name} {count}"] = await explain(connection, QUERIES[name], params)
        params = known_rows_params(filled, count)
        found[f"known_rows {count}"] = await explain(connection, IMMEDIATE["known_rows"], params)
    return found


async def filled_with(connection: Connection, statistics: str, rows: int) -> Filled:
    """Fill, so that the planner knows the truth, believes in an empty table, or knows nothing."""
    for table in ("queue", "cells", "rows"):
        await connection.execute(f"alter table {table} set (autovacuum_enabled = off)".encode())
    if statistics == "of_an_empty_table":
        await connection.execute("analyze")
    filled = await fill(connection, rows=rows)
    if statistics == "fresh":
        await connection.execute("analyze")
    if statistics == "of_an_emptied_queue":
        await _empty_for_a_while(connection)
    return filled


async def _empty_for_a_while(connection: Connection) -> None:
    """Vacuum the queue while it has many pages and next to no entry, then fill it again."""
    for statement in (
        "create temporary table kept as select * from queue",
        "delete from queue where ctid <> (select max(ctid) from queue)",
        "vacuum (analyze) queue",
        "analyze cells",
        "insert into queue select * from kept on conflict do nothing",
    ):
        await connection.execute(statement.encode(), prepare=False)


async def check_plans(pool: Pool, mode: str, statistics: str, rows: int) -> None:
    async with pool.connection() as connection:
        filled = await filled_with(connection, statistics, rows)
        await connection.execute(f"set plan_cache_mode = {mode}".encode())
        for name, plan in (await plans(connection, filled)).items():
            assert not scanned(plan) & {"queue", "cells", "rows"}, f"{name} reads a whole table"
            wanted = {"queue_place"} if name == "claim" else {"queue_place", "queue_pkey"}
            assert wanted & indexes(plan), f"{name} uses no index of the queue"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("statistics", STATISTICS)
async def test_ten_thousand_queued_cells_are_found_by_index(
    pool: Pool, mode: str, statistics: str
) -> None:
    await check_plans(pool, mode, statistics, 3_300)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("statistics", ["fresh", "of_an_empty_table"])
async def test_a_million_queued_cells_are_found_by_index(
    pool: Pool, mode: str, statistics: str
) -> None:
    await check_plans(pool, mode, statistics, 333_000)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("statistics", STATISTICS)
async def test_progress_loops_over_no_table_for_every_cell(
    pool: Pool, mode: str, statistics: str
) -> None:
    async with pool.connection() as connection:
        filled = await filled_with(connection, statistics, 3_300)
        await connection.execute(f"set plan_cache_mode = {mode}".encode())
        params = {"collection_id": filled.collection_id}
        async with connection.transaction():
            for setting in SNAPSHOT:
                await connection.execute(setting)
            for name in ("count_cells", "count_entries"):
                plan = await explain(connection, PROGRESS[name], params)
                assert "Nested Loop" not in {node["Node Type"] for node in nodes(plan)}, name
