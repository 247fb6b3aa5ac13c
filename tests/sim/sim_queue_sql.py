"""What the statements of `queue.sql` do but for the claim: each transition is the machine's."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import psycopg
from sim_postgres import Params, Rows, statement
from sim_rows import CellRow, Entry, Key, Lane, Transaction

from everfill.autofill import machine
from everfill.autofill.machine import State
from everfill.autofill.queue import QUERIES

REFUSED = "\u2620"
"""A value that holds this is one that the database cannot hold."""
RESULTS = {
    "ready": machine.Result.ANSWER,
    "not_found": machine.Result.ANSWER,
    "unchanged": machine.Result.ANSWER,
    "failed": machine.Result.PERMANENT,
    "retry": machine.Result.TRANSIENT,
    "waiting": machine.Result.WAITING,
    "outdated": machine.Result.PINNED,
}


def step(tx: Transaction, key: Key, event: machine.Event) -> tuple[machine.Cell, machine.Cell]:
    """A cell before and after an event."""
    before = tx.cell(key)
    return before, machine.step(before, event)


def enqueue(tx: Transaction, key: Key, entry: Entry, lane_id: int) -> bool:
    """Give an entry the next place of a lane; tells whether the lane was empty before."""
    tail = tx.find("tails", lane_id)
    tx.put("tails", lane_id, tail + 1)
    tx.put("queue", key, replace(entry, lane_id=lane_id, seq=tail + 1, retry_at=None))
    return tx.find("lanes", lane_id).cursor_seq >= tail


def _collection(_tx: Transaction, p: Params) -> list[object]:
    return [("collection", p["collection_id"])]


def _claims(tx: Transaction, claim_ids: Iterable[int]) -> list[object]:
    return [("claim", key) for key in sorted(set(claim_ids)) if tx.find("claims", key)]


def _keys(p: Params) -> list[Key]:
    pairs = zip(p["rows"], p["columns"], strict=True)
    return [Key(p["collection_id"], row, column) for row, column in pairs]


@statement(QUERIES, "lock_collection", _collection)
def lock_collection(_tx: Transaction, _p: Params) -> Rows:
    return []


@statement(QUERIES, "lock_claims", lambda *_: ["claims"])
def lock_claims(_tx: Transaction, _p: Params) -> Rows:
    return []


@statement(QUERIES, "notify")
def notify(tx: Transaction, _p: Params) -> Rows:
    tx.notified = True
    return []


@statement(QUERIES, "ensure_lanes")
def ensure_lanes(tx: Transaction, p: Params) -> Rows:
    collection_id, run_id = p["collection_id"], p["run_id"]
    found = {
        lane.cost_class: lane_id
        for lane_id, lane in tx.scan("lanes")
        if lane.collection_id == collection_id and lane.run_id == run_id
    }
    run = tx.find("runs", run_id) if run_id else None
    for cost_class in sorted(set(p["cost_classes"]) - found.keys()):
        lane_id = found[cost_class] = tx.database.next_id("lanes")
        lane = Lane(
            collection_id=collection_id,
            namespace_id=tx.find("collections", collection_id).namespace_id,
            run_id=run_id,
            cost_class=cost_class,
            weight=run.weight if run else 1.0,
        )
        tx.put("lanes", lane_id, lane)
        tx.put("tails", lane_id, 0)
    return list(found.items())


# -- signal ---------------------------------------------------------------------------------------


@statement(QUERIES, "signal")
def signal(tx: Transaction, p: Params) -> Rows:
    chosen = list(zip(p["columns"], p["lanes"], p["forced"], p["explicit"], strict=True))
    ancestors = {column: _ancestors(tx, column) for column, *_ in chosen}
    cells, woken = 0, False
    for row_id in p["rows"]:
        keys = {column: Key(p["collection_id"], row_id, column) for column, *_ in chosen}
        asked = {
            column
            for column, _, _, explicit in chosen
            if explicit and _passes(tx, keys[column], p["only"])
        }
        hits = [c for c in chosen if c[0] in asked or ancestors[c[0]] & asked]
        pinned = {c[0] for c in hits if _pinned(tx, keys[c[0]])}
        beside = {c[0] for c in hits} - pinned
        for column, lane_id, forced, _ in hits:
            if column in pinned:
                _hide(tx, keys[column])
                continue
            cells += 1
            force = forced and column in asked
            woken |= _signal(tx, keys[column], lane_id, force, beside, interactive=p["interactive"])
    return [(cells, woken)]


def _ancestors(tx: Transaction, column: int) -> set[int]:
    found: set[int] = set()
    left = [column]
    while left:
        fresh = set(tx.upstreams(left.pop())) - found
        found |= fresh
        left += sorted(fresh)
    return found


def _pinned(tx: Transaction, key: Key) -> bool:
    cell = tx.cell(key)
    return cell.overridden or cell.locked


def _passes(tx: Transaction, key: Key, only: str | None) -> bool:
    kept = tx.find("cells", key)
    status = kept.status if kept else "empty"
    unsettled = tx.find("queue", key) is not None
    version = tx.find("columns", key.column_id).definition_version
    old = kept is not None and kept.definition_version not in {None, version}
    match only:
        case None:
            return True
        case "unsettled":
            return unsettled
        case _ if unsettled:
            return False
        case "outdated":
            return status == "outdated" or old
        case "unfinished":
            return status in {"empty", "waiting", "outdated", "failed"} or old
        case _:
            return status == only


def _hide(tx: Transaction, key: Key) -> None:
    """What a person's value or a lock hides is not the newest any more."""
    before, after = step(tx, key, machine.Signal(ready=True))
    kept = tx.find("cells", key)
    if before.settled and after.outdated and kept.status in {"ready", "not_found"}:
        tx.put("cells", key, replace(kept, status="outdated", reason="input_changed"))


def _signal(
    tx: Transaction, key: Key, lane_id: int, force: bool, beside: set[int], *, interactive: bool
) -> bool:
    ready = tx.ready(key) and not beside.intersection(tx.upstreams(key.column_id))
    before, after = step(tx, key, machine.Signal(ready=ready))
    tx.told.append(("signalled", key))
    old: Entry | None = tx.find("queue", key)
    entry = Entry(
        lane_id=old.lane_id if old and old.interactive else lane_id,
        signal=after.signal,
        rounds=after.rounds,
        tries=after.tries,
        forced=force or (old is not None and old.forced),
        interactive=interactive or (old is not None and old.interactive),
    )
    lane_stays = old is not None and (old.interactive or not interactive)
    if after.state is State.BLOCKED:
        tx.put("queue", key, entry)
    elif before.state is State.COMPUTING or (after.place == before.place and lane_stays):
        assert old is not None
        tx.put("queue", key, replace(entry, lane_id=old.lane_id, seq=old.seq))
    else:
        assert after.state is State.QUEUED
        return enqueue(tx, key, entry, entry.lane_id)
    return False


# -- finalize and release -------------------------------------------------------------------------


def _decoded(p: Params) -> Params:
    """The parameters with their array literals as lists."""
    numbers = ("claims", "ended", "rows", "columns", "lanes", "seqs", "signals", "versions")
    numbers += ("settled_rows", "settled_columns")
    casts = {**dict.fromkeys(numbers, int), "outcomes": str, "delays": float}
    return p | {
        name: [cast(item) for item in p[name].strip("{}").split(",") if item]
        for name, cast in casts.items()
        if name in p
    }


def _finalize_locks(tx: Transaction, p: Params) -> list[object]:
    told = _decoded(p)
    return [*_collection(tx, p), *_claims(tx, [*told["claims"], *told["ended"]])]


@statement(QUERIES, "finalize", _finalize_locks)
def finalize(tx: Transaction, p: Params) -> Rows:
    if any(value and REFUSED in value for value in p["values"]):
        raise psycopg.DataError("the value cannot be held")
    p = _decoded(p)
    names = ("rows", "columns", "lanes", "seqs", "signals", "versions", "outcomes", "values")
    names += ("reasons", "hashes", "delays")
    judged: Rows = []
    for result in zip(*(p[name] for name in names), strict=True):
        judged += _judge(tx, p, dict(zip(names, result, strict=True)))
    used = [claim_id for claim_id in p["claims"] if claim_id not in p["ended"]]
    for claim_id in sorted(set(used)):
        if claim := tx.find("claims", claim_id):
            tx.put("claims", claim_id, replace(claim, n=max(1, claim.n - used.count(claim_id))))
    for claim_id in p["ended"]:
        tx.drop("claims", claim_id)
    return [_summary(tx, p, judged)]


def _summary(tx: Transaction, p: Params, judged: Rows) -> tuple[Any, ...]:
    """What is not as it nearly always is."""
    all_stood = len(judged) == len(p["rows"])
    others = [row for row in judged if row[2] != "settle"]
    settled = [row for row in judged if row[2] == "settle"]
    return (
        all_stood,
        [row[0] for row in others] or None,
        [row[1] for row in others] or None,
        [row[2] for row in others] or None,
        None if all_stood else [row[0] for row in settled] or None,
        None if all_stood else [row[1] for row in settled] or None,
        [column for column in sorted(set(p["columns"])) if any(tx.dependents(column))] or None,
    )


def _judge(tx: Transaction, p: Params, r: dict[str, Any]) -> Rows:
    key = Key(p["collection_id"], r["rows"], r["columns"])
    entry: Entry | None = tx.find("queue", key)
    if entry is None:
        return []
    stands = (entry.lane_id, entry.seq) == (r["lanes"], r["seqs"])
    present = tx.find("columns", key.column_id).definition_version
    version = r["versions"] if r["versions"] >= 0 else present
    token = machine.Token(place=0 if stands else -1, signal=r["signals"], definition=version)
    event = machine.Finalize(token=token, result=RESULTS[r["outcomes"]], ready=False)
    before, after = step(tx, key, event)
    if after == before:
        return []
    verdict = _verdict(after, stale=version != present)
    tx.told.append((verdict, key, r["outcomes"], version == present, stands))
    if verdict == "settle":
        tx.drop("queue", key)
    else:
        at = tx.now(p) + timedelta(seconds=r["delays"]) if verdict == "retry" else None
        kept = replace(entry, seq=None, rounds=after.rounds, tries=after.tries, retry_at=at)
        tx.put("queue", key, kept)
    if verdict in {"settle", "retry"}:
        dirty = before.signal != r["signals"]
        _answer(tx, key, r, outdated=after.outdated, dirty=dirty)
    return [(key.row_id, key.column_id, verdict)]


def _verdict(after: machine.Cell, *, stale: bool) -> str:
    if after.settled:
        return "settle"
    if after.state is State.RETRYING:
        return "retry"
    return "stale" if stale else "again"


def _answer(tx: Transaction, key: Key, r: dict[str, Any], *, outdated: bool, dirty: bool) -> None:
    """Keep what came home: a value, or what is told of the one that is kept."""
    kept: CellRow = tx.find("cells", key) or CellRow()
    outcome, version = r["outcomes"], r["versions"]
    version = version if version >= 0 else kept.definition_version
    told = replace(kept, definition_version=version, reason=r["reasons"], failed_hash=None)
    if outcome in {"ready", "not_found"}:
        _mark_by_hand(tx, key, r["values"])
        status = "outdated" if outdated else outcome
        told = replace(told, computed_value=r["values"], status=status, input_hash=r["hashes"])
    elif outcome == "unchanged":
        calm = "ready" if kept.computed_value is not None else "not_found"
        told = replace(told, status="outdated" if outdated else calm)
    elif outcome == "outdated":
        shown = kept.status in {"ready", "not_found"}
        told = replace(told, status="outdated" if shown else kept.status)
    else:
        failed = outcome in {"retry", "failed"}
        status = "failed" if failed else outcome
        told = replace(
            told, status=status, failed_hash=r["hashes"] if failed and not dirty else None
        )
    tx.put("cells", key, told)


def _mark_by_hand(tx: Transaction, key: Key, value: str | None) -> None:
    """What recomputes only by hand or by the clock is outdated by a value that changed."""
    kept: CellRow | None = tx.find("cells", key)
    if kept and (kept.user_value is not None or kept.computed_value == value):
        return
    if kept is None and value is None:
        return
    for column_id in tx.dependents(key.column_id):
        below = key._replace(column_id=column_id)
        found: CellRow | None = tx.find("cells", below)
        by_hand = tx.find("columns", column_id).schedule != "on_change"
        settled = tx.find("queue", below) is None
        if by_hand and settled and found and found.status in {"ready", "not_found"}:
            tx.put("cells", below, replace(found, status="outdated", reason="input_changed"))


@statement(QUERIES, "release", _collection)
def release(tx: Transaction, p: Params) -> Rows:
    told = _decoded(p)
    near = dict.fromkeys(_keys(told))
    settled = _keys(told | {"rows": told["settled_rows"], "columns": told["settled_columns"]})
    for key in [*near, *settled]:
        near |= dict.fromkeys(key._replace(column_id=c) for c in tx.dependents(key.column_id))
    ready = [key for key in sorted(near) if _released(tx, key)]
    woken = False
    for key in ready:
        entry = tx.find("queue", key)
        woken |= enqueue(tx, key, entry, _lane_of(tx, key, entry))
    return [(len(ready), woken)]


def _released(tx: Transaction, key: Key) -> bool:
    if tx.find("queue", key) is None or not tx.ready(key):
        return False
    before, after = step(tx, key, machine.Release())
    return after.place > before.place


def _lane_of(tx: Transaction, key: Key, entry: Entry) -> int:
    if entry.interactive:
        cost_class = tx.find("columns", key.column_id).cost_class
        for lane_id, lane in tx.scan("lanes"):
            if (lane.collection_id, lane.run_id, lane.cost_class) == (
                key.collection_id,
                None,
                cost_class,
            ):
                return lane_id
    return entry.lane_id


# -- leases, retries, healing ---------------------------------------------------------------------


@statement(QUERIES, "renew", lambda tx, p: _claims(tx, p["claims"]))
def renew(tx: Transaction, p: Params) -> Rows:
    until = tx.now(p) + timedelta(seconds=p["lease_seconds"])
    for claim_id in p["claims"]:
        if claim := tx.find("claims", claim_id):
            tx.put("claims", claim_id, replace(claim, lease_until=until))
    return []


@statement(QUERIES, "expired_collections")
def expired_collections(tx: Transaction, p: Params) -> Rows:
    found = {c.collection_id for _, c in tx.scan("claims") if c.lease_until < tx.now(p)}
    return [(key,) for key in sorted(found)]


def _expired(tx: Transaction, p: Params) -> list[int]:
    return [
        claim_id
        for claim_id, claim in tx.scan("claims")
        if claim.collection_id == p["collection_id"] and claim.lease_until < tx.now(p)
    ]


@statement(QUERIES, "reclaim", lambda tx, p: [*_collection(tx, p), *_claims(tx, _expired(tx, p))])
def reclaim(tx: Transaction, p: Params) -> Rows:
    lost = _end_claims(tx, p["collection_id"], _expired(tx, p))
    rows: Rows = []
    for key, entry in lost:
        before, after = step(tx, key, machine.Expire(ready=False))
        tx.told.append(("lost", key))
        tries = before.tries + 1 if after.settled else after.tries
        tx.put("queue", key, replace(entry, seq=None, tries=tries))
        rows.append((key.row_id, key.column_id, tries))
    return rows


def _end_claims(
    tx: Transaction, collection_id: int, claim_ids: Iterable[int]
) -> list[tuple[Key, Entry]]:
    """End claims; the cells that they still held."""
    ended = [claim for key in claim_ids if (claim := tx.find("claims", key))]
    for claim_id in claim_ids:
        tx.drop("claims", claim_id)
    return [
        (key, entry)
        for key, entry in sorted(tx.entries(collection_id))
        if entry.seq is not None
        and any(c.lane_id == entry.lane_id and c.seq_from <= entry.seq <= c.seq_to for c in ended)
    ]


@statement(QUERIES, "give_back", lambda tx, p: [*_collection(tx, p), *_claims(tx, p["claims"])])
def give_back(tx: Transaction, p: Params) -> Rows:
    mine = [
        key
        for key in p["claims"]
        if (claim := tx.find("claims", key)) and claim.collection_id == p["collection_id"]
    ]
    returned = _end_claims(tx, p["collection_id"], mine)
    for key, entry in returned:
        _, after = step(tx, key, machine.GiveBack(ready=False))
        assert after.state is State.BLOCKED
        tx.told.append(("given back", key))
        tx.put("queue", key, replace(entry, seq=None, tries=after.tries))
    return [(key.row_id, key.column_id) for key, _ in returned]


@statement(QUERIES, "fail_lost", _collection)
def fail_lost(tx: Transaction, p: Params) -> Rows:
    for key in _keys(p):
        tx.drop("queue", key)
        kept = tx.find("cells", key) or CellRow()
        lost = replace(kept, status="failed", reason="worker_lost", failed_hash=None)
        tx.put("cells", key, lost)
        tx.told.append(("failed as lost", key))
    return []


@statement(QUERIES, "claim_collections")
def claim_collections(tx: Transaction, p: Params) -> Rows:
    claims = [claim for key in p["claims"] if (claim := tx.find("claims", key))]
    return [(key,) for key in sorted({claim.collection_id for claim in claims})]


@statement(QUERIES, "due_collections")
def due_collections(tx: Transaction, p: Params) -> Rows:
    now = tx.now(p)
    due = {k.collection_id for k, e in tx.scan("queue") if e.retry_at and e.retry_at <= now}
    return [(key,) for key in sorted(due)]


@statement(QUERIES, "retry_due", _collection)
def retry_due(tx: Transaction, p: Params) -> Rows:
    now = tx.now(p)
    due = [
        (key, entry)
        for key, entry in sorted(tx.entries(p["collection_id"]))
        if entry.retry_at and entry.retry_at <= now
    ]
    for key, entry in due:
        _, after = step(tx, key, machine.RetryDue(ready=False))
        assert after.state is State.BLOCKED
        tx.put("queue", key, replace(entry, retry_at=None))
    return [(key.row_id, key.column_id) for key, _ in due]


@statement(QUERIES, "record_usage")
def record_usage(tx: Transaction, p: Params) -> Rows:
    tx.told.append(("usage", p["column_id"], p["calls"]))
    return []
