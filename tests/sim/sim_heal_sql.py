"""What healing, dropping, runs and the clock do in the simulated database."""

from __future__ import annotations

from dataclasses import replace

from sim_postgres import Params, Rows, statement
from sim_queue_sql import _collection, _keys, step
from sim_rows import CellRow, Key, RunRow, Transaction

from everfill.autofill import dispatch as dispatch_module
from everfill.autofill import janitor as janitor_module
from everfill.autofill import machine
from everfill.autofill.machine import State
from everfill.autofill.queue import QUERIES

RUNS = dispatch_module._SQL
CLOCK = janitor_module._SQL


# -- healing --------------------------------------------------------------------------------------


def _strays(tx: Transaction, collection_id: int) -> list[Key]:
    """Entries whose number was passed but lies in no claim."""
    claims = [claim for _, claim in tx.scan("claims") if claim.collection_id == collection_id]
    return [
        key
        for key, entry in sorted(tx.entries(collection_id))
        if tx.state(entry) is State.COMPUTING
        and not any(
            c.lane_id == entry.lane_id and c.seq_from <= (entry.seq or 0) <= c.seq_to
            for c in claims
        )
    ]


def _stands_still(tx: Transaction, collection_id: int) -> bool:
    """Whether there are entries, but no claim and no lane with work to move them."""
    return (
        any(entry.retry_at is None for _, entry in tx.entries(collection_id))
        and all(claim.collection_id != collection_id for _, claim in tx.scan("claims"))
        and all(
            lane.cursor_seq >= tx.find("tails", lane_id)
            for lane_id, lane in tx.scan("lanes")
            if lane.collection_id == collection_id
        )
    )


@statement(QUERIES, "stray_collections")
def stray_collections(tx: Transaction, _p: Params) -> Rows:
    having = sorted({lane.collection_id for _, lane in tx.scan("lanes")})
    return [(key,) for key in having if _strays(tx, key) or _stands_still(tx, key)]


@statement(QUERIES, "stray_entries", _collection)
def stray_entries(tx: Transaction, p: Params) -> Rows:
    collection_id = p["collection_id"]
    for key in _strays(tx, collection_id):
        tx.put("queue", key, replace(tx.find("queue", key), seq=None))
    return [
        (key.row_id, key.column_id)
        for key, entry in sorted(tx.entries(collection_id))
        if tx.state(entry) is State.BLOCKED
    ]


@statement(QUERIES, "idle_lane_collections")
def idle_lane_collections(tx: Transaction, _p: Params) -> Rows:
    idle = {
        lane.collection_id
        for lane_id, lane in tx.scan("lanes")
        if lane.cursor_seq >= tx.find("tails", lane_id)
    }
    return [(key,) for key in sorted(idle)]


def _idle_locks(tx: Transaction, p: Params) -> list[object]:
    idle = [k for k, lane in tx.scan("lanes") if lane.cursor_seq >= tx.find("tails", k)]
    return [*_collection(tx, p), *(("lane", key) for key in sorted(idle))]


@statement(QUERIES, "drop_idle_lanes", _idle_locks)
def drop_idle_lanes(tx: Transaction, p: Params) -> Rows:
    used = {entry.lane_id for _, entry in tx.scan("queue")}
    used |= {claim.lane_id for _, claim in tx.scan("claims")}
    dropped: Rows = []
    for lane_id, lane in tx.scan("lanes"):
        run = tx.find("runs", lane.run_id) if lane.run_id else None
        going_on = run is not None and not (run.dispatched or run.cancelled)
        idle = lane.cursor_seq >= tx.find("tails", lane_id) and lane_id not in used
        if lane.collection_id == p["collection_id"] and idle and not going_on:
            tx.drop("lanes", lane_id)
            tx.drop("tails", lane_id)
            dropped.append((lane_id,))
    return dropped


# -- dropping and rearranging ---------------------------------------------------------------------


@statement(QUERIES, "drop_entries", _collection)
def drop_entries(tx: Transaction, p: Params) -> Rows:
    return _drop(tx, [key for key in _keys(p) if tx.find("queue", key)])


@statement(QUERIES, "drop_idle_entries", _collection)
def drop_idle_entries(tx: Transaction, p: Params) -> Rows:
    found = [key for key in _keys(p) if tx.find("queue", key)]
    return _drop(tx, [key for key in found if step(tx, key, machine.Override())[1].settled])


def _drop(tx: Transaction, keys: list[Key]) -> Rows:
    for key in keys:
        tx.drop("queue", key)
        tx.told.append(("withdrawn", key))
    return [(key.row_id, key.column_id) for key in keys]


@statement(QUERIES, "block_column", _collection)
def block_column(tx: Transaction, p: Params) -> Rows:
    for key, entry in tx.entries(p["collection_id"]):
        if key.column_id == p["column_id"] and not tx.ready(key):
            before, after = step(tx, key, machine.Block())
            if after.state is State.BLOCKED and before.state is State.QUEUED:
                tx.put("queue", key, replace(entry, seq=None))
            elif after.signal != before.signal:
                tx.put("queue", key, replace(entry, signal=after.signal))
    return []


@statement(QUERIES, "blocked_entries")
def blocked_entries(tx: Transaction, p: Params) -> Rows:
    return [
        (key.row_id, key.column_id)
        for key, entry in sorted(tx.entries(p["collection_id"]))
        if key.column_id == p["column_id"]
        and key.row_id > p["after"]
        and tx.state(entry) is State.BLOCKED
    ][: p["entries_max"]]


# -- runs -----------------------------------------------------------------------------------------


def _run_lock(_tx: Transaction, p: Params) -> list[object]:
    return [("run", p["run_id"])]


def _lane_locks(tx: Transaction, p: Params) -> list[object]:
    lanes = [key for key, lane in tx.scan("lanes") if lane.run_id == p["run_id"]]
    return [("lane", key) for key in sorted(lanes)]


@statement(RUNS, "start_run")
def start_run(tx: Transaction, p: Params) -> Rows:
    run_id = tx.database.next_id("runs")
    run = RunRow(
        collection_id=p["collection_id"],
        column_ids=tuple(p["columns"]),
        only_status=p["only"],
        forced=p["forced"],
        row_ids=None if p["rows"] is None else tuple(p["rows"]),
        last_row_id=p["last_row_id"],
        weight=p["weight"],
        touched_at=tx.started_at,
    )
    tx.put("runs", run_id, run)
    return [(run_id,)]


def _going_on(tx: Transaction, run_id: int) -> RunRow | None:
    run: RunRow | None = tx.find("runs", run_id)
    return None if run is None or run.dispatched or run.cancelled else run


@statement(RUNS, "run_collection")
def run_collection(tx: Transaction, p: Params) -> Rows:
    run = _going_on(tx, p["run_id"])
    return [(run.collection_id,)] if run else []


@statement(RUNS, "lock_run", _run_lock)
def lock_run(tx: Transaction, p: Params) -> Rows:
    run = _going_on(tx, p["run_id"])
    if run is None:
        return []
    named = run.row_ids is not None
    columns = list(run.column_ids)
    span = (run.next_row_id, run.last_row_id, named)
    return [(run.collection_id, columns, run.only_status, run.forced, *span)]


@statement(RUNS, "run_rows")
def run_rows(tx: Transaction, p: Params) -> Rows:
    found = sorted(
        row_id
        for (collection_id, row_id), _ in tx.scan("rows")
        if collection_id == p["collection_id"] and p["from"] <= row_id <= p["to"]
    )
    return [(row_id,) for row_id in found[: p["count_max"]]]


@statement(RUNS, "run_named_rows")
def run_named_rows(tx: Transaction, p: Params) -> Rows:
    named = tx.find("runs", p["run_id"]).row_ids
    every = run_rows(tx, {**p, "count_max": 1_000_000})
    return [row for row in every if row[0] in named][: p["count_max"]]


@statement(RUNS, "advance_run", _run_lock)
def advance_run(tx: Transaction, p: Params) -> Rows:
    run = tx.find("runs", p["run_id"])
    moved = replace(run, next_row_id=p["next_row_id"], touched_at=tx.started_at)
    tx.put("runs", p["run_id"], replace(moved, dispatched=p["done"]))
    return []


@statement(RUNS, "stalled_runs")
def stalled_runs(tx: Transaction, p: Params) -> Rows:
    return [
        (run_id,)
        for run_id, run in sorted(tx.scan("runs"))
        if _going_on(tx, run_id)
        and (tx.started_at - run.touched_at).total_seconds() > p["idle_seconds"]
    ]


@statement(RUNS, "set_paused", _lane_locks)
def set_paused(tx: Transaction, p: Params) -> Rows:
    for lane_id, lane in tx.scan("lanes"):
        if lane.run_id == p["run_id"]:
            tx.put("lanes", lane_id, replace(lane, paused=p["paused"]))
    return []


@statement(RUNS, "cancel_run", lambda tx, p: [*_run_lock(tx, p), *_lane_locks(tx, p)])
def cancel_run(tx: Transaction, p: Params) -> Rows:
    run_id = p["run_id"]
    run = tx.find("runs", run_id)
    tx.put("runs", run_id, replace(run, cancelled=True))
    set_paused(tx, {"run_id": run_id, "paused": False})
    planned = _below(tx, set(run.column_ids))
    lanes = {lane_id for lane_id, lane in tx.scan("lanes") if lane.run_id == run_id}
    withdrawn = [
        key
        for key, entry in sorted(tx.entries(run.collection_id))
        if entry.lane_id in lanes
        and entry.signal == 1
        and (entry.seq is None or tx.state(entry) is State.QUEUED)
    ]
    _drop(tx, withdrawn)
    gone = set(withdrawn)
    stuck: dict[Key, None] = {}
    for key in withdrawn:
        above = [key._replace(column_id=c) for c in tx.upstreams(key.column_id) if c in planned]
        kept: CellRow | None = tx.find("cells", key)
        if kept and kept.status in {"ready", "not_found"} and set(above) - gone:
            tx.put("cells", key, replace(kept, status="outdated", reason="input_changed"))
        for below in (key._replace(column_id=c) for c in tx.dependents(key.column_id)):
            entry = tx.find("queue", below)
            if below not in gone and entry and tx.state(entry) is State.BLOCKED:
                stuck[below] = None
    keys = list(stuck)
    return [(len(withdrawn), [key.row_id for key in keys], [key.column_id for key in keys])]


def _below(tx: Transaction, roots: set[int]) -> set[int]:
    found, left = set(roots), sorted(roots)
    while left:
        fresh = set(tx.dependents(left.pop())) - found
        found |= fresh
        left += sorted(fresh)
    return found


# -- the clock ------------------------------------------------------------------------------------


@statement(CLOCK, "cron_columns")
def cron_columns(tx: Transaction, p: Params) -> Rows:
    due = [
        (c.collection_id, key, c.cron, c.cron_ran_at or c.created_at, tx.now(p))
        for key, c in tx.scan("columns")
        if c.schedule == "cron"
    ]
    return sorted(due)


@statement(CLOCK, "mark_cron", lambda _tx, p: [("column", key) for key in sorted(p["columns"])])
def mark_cron(tx: Transaction, p: Params) -> Rows:
    won: Rows = []
    given = zip(p["columns"], p["crons"], p["seen"], p["due"], strict=True)
    for column_id, cron, seen_at, due_at in sorted(given):
        column = tx.find("columns", column_id)
        if column and (column.cron, column.cron_ran_at or column.created_at) == (cron, seen_at):
            tx.put("columns", column_id, replace(column, cron_ran_at=due_at))
            won.append((column_id,))
    return won
