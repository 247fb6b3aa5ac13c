"""What must hold at every commit, and what must hold once all is calm."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sim_postgres import Rows, SimConnection
from sim_rows import CellRow, Entry, Key, Transaction

from everfill.autofill.inputs import Compute, Decision, Unchanged, Waiting, decide, make_plan
from everfill.autofill.machine import State
from everfill.kernel import limits
from everfill.kernel.ids import CollectionId, ColumnId, RowId
from everfill.tables.cells import Cells
from everfill.tables.definitions import Definitions
from everfill.tables.schema import Column, Schema
from everfill.tables.values import decode

if TYPE_CHECKING:
    from sim_world import World

_NUMBER = re.compile(r"\d+")
_TRACED = {"claim", "finalize", "signal", "release", "reclaim", "give_back", "retry_due", "commit"}
_LANDED = {"settle", "retry", "again", "stale"}
_BOUNDS: dict[str, Callable[[], int]] = {
    "lost": lambda: limits.LOST_TRIES_MAX,
    "retry": lambda: limits.TRIES_MAX - 1,
    "again": lambda: limits.DIRTY_ROUNDS_MAX - 1,
}
_ENDS = {
    "signalled": ("lost", "retry"),
    "again": ("lost", "retry"),
    "stale": ("lost", "retry"),
    "retry": ("lost",),
    "settle": tuple(_BOUNDS),
    "withdrawn": tuple(_BOUNDS),
    "failed as lost": tuple(_BOUNDS),
}
"""What ends a streak of what."""


class Checks:
    """Watches one simulation."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.failures: list[str] = []
        self.trace: list[str] = []
        self.commits = 0
        self.told: Counter[str] = Counter()
        self.wanted: set[Key] = set()
        self.usage_calls = 0
        self._streaks: Counter[tuple[str, Key]] = Counter()

    def fail(self, message: str) -> None:
        self.failures.append(f"at {self._world.loop.time():.3f} s: {message}")
        self.note("FAILURE", message)

    def note(self, *words: object) -> None:
        if self._world.traced:
            self.trace.append(f"{self._world.loop.time():.4f} {' '.join(map(str, words))}")

    # -- at every step ----------------------------------------------------------------------------

    def executed(self, process: str, name: str, rows: Rows) -> None:
        if self._world.traced:
            self.note(process, name, rows if name in _TRACED else len(rows))

    def committed(self, tx: Transaction) -> None:
        self.commits += 1
        before: dict[str, dict[Any, Any]] = tx.told.pop()[1]
        for kind, *rest in tx.told:
            if kind == "usage":
                self.usage_calls += rest[1]
            else:
                self._count(kind, rest[0], rest[1:])
        after = Transaction(self._world.server.database, self._world.server.now())
        for kind, key, *_ in tx.told:
            if kind == "filled":
                self._check_filled(key, after)
        if tx.writes.keys() & {"queue", "claims", "lanes"}:
            self._check_flight(after)
        for key, old in before.get("cells", {}).items():
            if old and (new := after.find("cells", key)):
                self._check_newer(key, old, new)
        self._count_late_claims(before.get("claims", {}), after)
        for key in before.get("rows", {}):
            if after.find("rows", key) is None:
                self.wanted -= {k for k in self.wanted if (k.collection_id, k.row_id) == key}

    def _count_late_claims(self, before: dict[int, Any], after: Transaction) -> None:
        """A claim that a worker sent before it was killed is in flight at the kill, too."""
        for claim_id, old in before.items():
            claim = after.find("claims", claim_id)
            if old is None and claim and claim.worker in self._world.killed:
                self._world.held_at_kills += claim.n

    def _count(self, kind: str, key: Key, detail: list[Any]) -> None:
        self.told[kind] += 1
        if kind in {"signalled", "filled"}:
            self.wanted.add(key)
        elif kind == "withdrawn":
            self.wanted.discard(key)
        elif kind in _LANDED:
            self._check_landed(kind, key, detail)
        if kind in _BOUNDS and not (kind == "again" and detail[0] in {"waiting", "outdated"}):
            self._streaks[kind, key] += 1
            if self._streaks[kind, key] > _BOUNDS[kind]():
                self.fail(f"{key}: {kind} {self._streaks[kind, key]} times in a row")
        for ended in _ENDS.get(kind, ()):
            self._streaks.pop((ended, key), None)

    def _check_landed(self, kind: str, key: Key, detail: list[Any]) -> None:
        _, newest, stands = detail
        if not stands:
            self.fail(f"{key} took a result of a claim that it had been taken from")
        if kind == "settle" and not newest:
            self.fail(f"{key} took a result of an old definition")

    def _check_filled(self, key: Key, now: Transaction) -> None:
        """What was filled at once is of the present definition, and nobody waits for it."""
        if now.find("queue", key):
            self.fail(f"{key} was filled at once although somebody waits for it")
        version = now.find("cells", key).definition_version
        if version != now.find("columns", key.column_id).definition_version:
            self.fail(f"{key} was filled at once by definition {version}")

    def _check_flight(self, now: Transaction) -> None:
        """Caps hold; every computing cell lies in one claim; no two entries share a place."""
        claims = [claim for _, claim in now.scan("claims")]
        counted: Counter[tuple[str, int]] = Counter()
        for claim in claims:
            counted["collections", claim.collection_id] += claim.n
            counted["namespaces", claim.namespace_id] += claim.n
        really: Counter[tuple[str, int]] = Counter()
        places: set[tuple[int, int]] = set()
        for key, entry in now.scan("queue"):
            if entry.seq is not None and (entry.lane_id, entry.seq) in places:
                self.fail(f"{key} shares its place")
            if entry.seq is not None:
                places.add((entry.lane_id, entry.seq))
            if now.state(entry) is State.COMPUTING:
                namespace_id = now.find("collections", key.collection_id).namespace_id
                really["collections", key.collection_id] += 1
                really["namespaces", namespace_id] += 1
                self._check_held(key, entry, claims)
        for flight, words in ((counted, "counted"), (really, "really")):
            for (table, owner), n in flight.items():
                if n > now.find(table, owner).cap_cells:
                    self.fail(f"{n} cells are {words} in flight in number {owner} of {table}")

    def _check_held(self, key: Key, entry: Entry, claims: list[Any]) -> None:
        assert entry.seq is not None
        holding = [
            c for c in claims if c.lane_id == entry.lane_id and c.seq_from <= entry.seq <= c.seq_to
        ]
        if len(holding) != 1:
            self.fail(f"{key} is computed under {len(holding)} claims")

    def _check_newer(self, key: Key, old: CellRow, new: CellRow) -> None:
        """Every typed value is a greater number than those before, so a text shows its age."""
        texts = [str(row.computed_value) for row in (old, new)]
        same = old.definition_version == new.definition_version
        if (
            texts[0] == texts[1]
            or not same
            or _NUMBER.sub("#", texts[0]) != _NUMBER.sub("#", texts[1])
        ):
            return
        numbers = [[int(n) for n in _NUMBER.findall(text)] for text in texts]
        if any(b < a for a, b in zip(*numbers, strict=True)):
            self.fail(f"{key}: {texts[1]} replaced the newer {texts[0]}")

    # -- at the end -------------------------------------------------------------------------------

    @property
    def settled(self) -> bool:
        """Whether nothing is queued, claimed or still being dispatched."""
        tables = self._world.server.database.tables
        runs = tables["runs"].values()
        going_on = any(not (run.dispatched or run.cancelled) for run in runs)
        return not (tables["queue"] or tables["claims"] or going_on)

    async def check_values(self, connection: SimConnection) -> None:
        """Every cell is what its newest inputs and definition make it, or says why not."""
        for collection_id in self._world.collections:
            schema = await Definitions(connection).load_schema(CollectionId(collection_id))
            for column in schema.computed:
                for row_id in range(1, self._world.rows + 1):
                    await self._check_value(connection, schema, column, RowId(row_id))

    async def _check_value(
        self, connection: SimConnection, schema: Schema, column: Column, row_id: RowId
    ) -> None:
        key = Key(schema.collection_id, row_id, column.column_id)
        tables = self._world.server.database.tables
        if (key.collection_id, row_id) not in tables["rows"]:
            if key in tables["cells"]:
                self.fail(f"{key} outlived its row")
            return
        kept: CellRow = tables["cells"].get(key) or CellRow()
        if kept.user_value is not None or kept.locked:
            return
        if kept.status == "empty":
            if key in self.wanted:
                self.fail(f"{key} was signalled and is lost")
            return
        old = kept.definition_version not in {None, column.definition_version}
        if kept.status == "outdated" or old:
            if not self._world.profile.edits and column.name != "e":
                self.fail(f"{key} is outdated though nobody changed anything")
            return
        now = await self._decide(connection, schema, column, row_id)
        self._judge(key, column, kept, now)

    def _judge(
        self, key: Key, column: Column, kept: CellRow, now: tuple[Decision, Decision]
    ) -> None:
        plain, forced = now
        assert column.computation
        by_hand = column.computation.schedule.mode != "on_change" or key not in self.wanted
        words = f"{key} ({column.name}): {kept} but {plain}"
        if kept.status in {"ready", "not_found"}:
            if not isinstance(plain, Unchanged) or not isinstance(forced, Compute):
                self.fail(f"stale: {words}")
            elif kept.status == "ready" and json.loads(kept.computed_value or "0") != (
                forced.request.text
            ):
                self.fail(f"wrong: {words}")
        elif kept.status == "waiting" and not by_hand:
            if not isinstance(plain, Waiting):
                self.fail(f"waits for nothing: {words}")
        elif (
            kept.status == "failed"
            and not by_hand
            and kept.failed_hash
            and (not isinstance(forced, Compute) or forced.input_hash != kept.failed_hash)
        ):
            self.fail(f"failed on old inputs: {words}")

    async def _decide(
        self, connection: SimConnection, schema: Schema, column: Column, row_id: RowId
    ) -> tuple[Decision, Decision]:
        """What the real worker would decide now, and what if it were forced."""
        assert column.computation
        plan = make_plan(schema, column, self._world.kinds[column.computation.kind].spec)
        ups = [up.column_id for up in plan.upstreams]
        columns = [ColumnId(key) for key in (*ups, column.column_id)]
        cells = Cells(connection, self._world.blobs)
        found = await cells.read_inputs(schema.collection_id, [row_id], columns)
        given = [found.get((row_id, up)) for up in ups]
        values = [decode(g.value) if g and g.value is not None else None for g in given]
        own = found.get((row_id, column.column_id))
        plain, forced = (decide(plan, own, given, values, forced=f) for f in (False, True))
        return plain, forced

    def check_counts(self) -> None:
        """Only what was lost was computed again, and every call is recorded."""
        world, profile = self._world, self._world.profile
        twice = world.calls.by_text.total() - len(world.calls.by_text)
        given = self.told["lost"] + self.told["given back"]
        if not (profile.edits or profile.failures) and twice > given:
            self.fail(f"{twice} cells were computed twice, but only {given} were lost")
        if profile.only_kills and self.told["lost"] > world.held_at_kills:
            self.fail(f"{self.told['lost']} lost, but {world.held_at_kills} in flight at kills")
        if profile.calm and self.usage_calls != world.calls.remote:
            self.fail(f"{self.usage_calls} calls recorded of {world.calls.remote}")
