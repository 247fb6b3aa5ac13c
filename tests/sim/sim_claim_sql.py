"""What the claim statement does: the lanes that are furthest behind, within every cap."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from sim_postgres import Params, Rows, statement
from sim_queue_sql import step
from sim_rows import ClaimRow, Entry, Key, Lane, Transaction

from everfill.autofill import machine
from everfill.autofill.machine import State
from everfill.autofill.queue import QUERIES


@dataclass
class Share:
    """What a lane may give to one claim: `wish` shrinks with every bound."""

    lane_id: int
    lane: Lane
    tail: int
    start: float
    rivals: float
    wish: int
    kind_max: int
    total_max: int
    collection_room: int
    namespace_room: int

    @property
    def interactive(self) -> bool:
        return self.lane.run_id is None


def in_flight(tx: Transaction) -> tuple[Counter[int], Counter[int]]:
    """Cells in claims, by collection and by namespace."""
    collections: Counter[int] = Counter()
    namespaces: Counter[int] = Counter()
    for _, claim in tx.scan("claims"):
        collections[claim.collection_id] += claim.n
        namespaces[claim.namespace_id] += claim.n
    return collections, namespaces


def _locks(tx: Transaction, _p: Params) -> list[object]:
    active = [key for key, lane in tx.scan("lanes") if lane.cursor_seq < tx.find("tails", key)]
    return ["claims", *(("lane", key) for key in sorted(active))]


@statement(QUERIES, "claim", _locks)
def claim(tx: Transaction, p: Params) -> Rows:
    shares = _nearest(_roomy(tx, p), p["lanes_max"])
    shares.sort(key=lambda s: (not s.interactive, s.start, s.lane_id))
    _bound(shares, lambda s: (s.lane.cost_class, s.interactive), lambda s: s.kind_max)
    _bound(shares, lambda s: s.lane.collection_id, lambda s: s.collection_room)
    _bound(shares, lambda s: s.lane.namespace_id, lambda s: s.namespace_room)
    _bound(shares, lambda s: s.lane.cost_class, lambda s: s.total_max)
    taken = [share for share in shares if share.wish > 0]
    _tick(tx, taken)
    rows: Rows = []
    for share in sorted(taken, key=lambda s: s.lane_id):
        rows += _take(tx, p, share)
    return sorted(rows, key=lambda row: (not row[4], row[0], row[7]))


def _roomy(tx: Transaction, p: Params) -> list[Share]:
    """Lanes with work that have room in their collection and namespace."""
    names = ("interactive_max", "bulk_max", "total_max")
    capacity = dict(zip(p["cost_classes"], zip(*(p[n] for n in names), strict=True), strict=True))
    in_collections, in_namespaces = in_flight(tx)
    active = [
        (lane_id, lane)
        for lane_id, lane in tx.scan("lanes")
        if lane.cursor_seq < tx.find("tails", lane_id) and not lane.paused
    ]
    rivals: Counter[tuple[int, str, bool]] = Counter()
    for _, lane in active:
        rivals[lane.namespace_id, lane.cost_class, lane.run_id is None] += lane.weight
    shares: list[Share] = []
    for lane_id, lane in active:
        interactive = lane.run_id is None
        interactive_max, bulk_max, total_max = capacity.get(lane.cost_class, (0, 0, 0))
        part = 1.0 if interactive else p["bulk_share"]
        kind_max = interactive_max if interactive else bulk_max
        tail = tx.find("tails", lane_id)
        share = Share(
            lane_id=lane_id,
            lane=lane,
            tail=tail,
            start=max(lane.vtime, tx.find("clocks", (lane.cost_class, interactive)) or 0.0),
            rivals=rivals[lane.namespace_id, lane.cost_class, interactive],
            wish=min(tail - lane.cursor_seq, kind_max, total_max),
            kind_max=kind_max,
            total_max=total_max,
            collection_room=_room(tx.find("collections", lane.collection_id), part)
            - in_collections[lane.collection_id],
            namespace_room=_room(tx.find("namespaces", lane.namespace_id), part)
            - in_namespaces[lane.namespace_id],
        )
        if total_max and share.collection_room > 0 and share.namespace_room > 0:
            shares.append(share)
    return shares


def _room(owner: Any, part: float) -> int:
    return owner.cap_cells if part == 1.0 else max(1, int(owner.cap_cells * part))


def _nearest(shares: list[Share], lanes_max: int) -> list[Share]:
    """The lanes of least virtual time in each class and kind."""
    places: Counter[tuple[str, bool]] = Counter()
    kept: list[Share] = []
    for share in sorted(shares, key=lambda s: (s.start, s.lane_id)):
        places[share.lane.cost_class, share.interactive] += 1
        if places[share.lane.cost_class, share.interactive] <= lanes_max:
            kept.append(share)
    return kept


def _bound(
    shares: list[Share], group: Callable[[Share], Any], room: Callable[[Share], int]
) -> None:
    """Let no running sum of wishes within a group go beyond its room."""
    used: Counter[Any] = Counter()
    for share in shares:
        wish = share.wish
        share.wish = max(0, min(wish, room(share) - used[group(share)]))
        used[group(share)] += wish


def _take(tx: Transaction, p: Params, share: Share) -> Rows:
    """The next cells of a lane under a new claim; its cursor and virtual time move on."""
    lane = share.lane
    waiting = [
        (key, entry)
        for key, entry in tx.entries(lane.collection_id)
        if entry.lane_id == share.lane_id and entry.seq is not None and entry.seq > lane.cursor_seq
    ]
    picked = sorted(waiting, key=lambda item: item[1].seq)[: share.wish]
    cursor = picked[-1][1].seq if len(picked) == share.wish else share.tail
    weight = lane.weight * tx.find("namespaces", lane.namespace_id).weight
    vtime = share.start + len(picked) * share.rivals / weight
    for key, _ in picked:
        before, after = step(tx, key, machine.Claim())
        assert (before.state, after.state) == (State.QUEUED, State.COMPUTING)
    tx.put("lanes", share.lane_id, replace(lane, cursor_seq=cursor, vtime=vtime))
    return _claim_row(tx, p, share, picked) if picked else []


def _claim_row(tx: Transaction, p: Params, share: Share, picked: list[tuple[Key, Entry]]) -> Rows:
    claim_id, lane = tx.database.next_id("claims"), share.lane
    last = picked[-1][1].seq
    assert last is not None
    made = ClaimRow(
        lane_id=share.lane_id,
        collection_id=lane.collection_id,
        namespace_id=lane.namespace_id,
        seq_from=lane.cursor_seq + 1,
        seq_to=last,
        n=len(picked),
        worker=p["worker"],
        lease_until=tx.now(p) + timedelta(seconds=p["lease_seconds"]),
    )
    tx.put("claims", claim_id, made)
    place = (claim_id, lane.collection_id, share.lane_id, lane.cost_class, share.interactive)
    return [
        (*place, key.row_id, key.column_id, entry.seq, entry.signal, entry.forced, entry.tries)
        for key, entry in picked
    ]


def _tick(tx: Transaction, taken: list[Share]) -> None:
    """Virtual time itself moves to the least that was served."""
    for share in taken:
        kind = (share.lane.cost_class, share.interactive)
        least = min(s.start for s in taken if (s.lane.cost_class, s.interactive) == kind)
        if (tx.find("clocks", kind) or 0.0) < least:
            tx.put("clocks", kind, least)
