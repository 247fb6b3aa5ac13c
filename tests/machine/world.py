"""One small table twice: on the real queue in Postgres, and as the pure machine has it.

Every action is done to both. `check` demands that they agree, cell by cell, and that the queue's
own invariants hold. Claims choose their cells themselves; the model follows what they chose.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from obstore.store import MemoryStore

from everfill.autofill import machine
from everfill.autofill.columns import ColumnDraft, ColumnKeeper
from everfill.autofill.dispatch import Dispatcher, Lane, Only, Request
from everfill.autofill.edits import Edits
from everfill.autofill.inputs import (
    Compute,
    Decision,
    Pinned,
    Unchanged,
    Waiting,
    decide,
    make_plan,
)
from everfill.autofill.machine import State
from everfill.autofill.queue import Capacity, ClaimedCell, Outcome, OutcomeKind, Queue
from everfill.compute.registry import get_kind
from everfill.infra.blobs import Blobs
from everfill.infra.postgres import Pool
from everfill.kernel import limits
from everfill.kernel.ids import CellKey, ClaimId, CollectionId, ColumnId, RowId
from everfill.tables.cells import Cells
from everfill.tables.definitions import Definitions
from everfill.tables.schema import Schema
from everfill.tables.values import JsonValue, decode

COLLECTION_CAP = 7
NAMESPACE_CAP = 9
LEASE_SECONDS = 60
START = datetime(2026, 1, 1, tzinfo=UTC)
RESULTS = {
    OutcomeKind.READY: machine.Result.ANSWER,
    OutcomeKind.NOT_FOUND: machine.Result.ANSWER,
    OutcomeKind.UNCHANGED: machine.Result.ANSWER,
    OutcomeKind.FAILED: machine.Result.PERMANENT,
    OutcomeKind.RETRY: machine.Result.TRANSIENT,
    OutcomeKind.WAITING: machine.Result.WAITING,
    OutcomeKind.OUTDATED: machine.Result.PINNED,
}
ENTRY_STATES = {
    "blocked": State.BLOCKED,
    "queued": State.QUEUED,
    "computing": State.COMPUTING,
    "retrying": State.RETRYING,
}
STATUS_STATES = {
    "empty": State.IDLE,
    "waiting": State.IDLE,
    "ready": State.DONE,
    "not_found": State.DONE,
    "outdated": State.DONE,
    "failed": State.ERROR,
}
_ENTRIES = """
    select q.row_id, q.column_id, q.lane_id, q.seq, q.signal, q.rounds, q.tries, q.forced,
        case when q.retry_at is not null then 'retrying' when q.seq is null then 'blocked'
            when q.seq <= l.cursor_seq then 'computing' else 'queued' end,
        (select count(*) from claims c
            where c.lane_id = q.lane_id and q.seq between c.seq_from and c.seq_to),
        t.tail_seq, l.cursor_seq
    from queue q left join lanes l using (lane_id) left join lane_tails t using (lane_id)
    where q.collection_id = %s
"""
_CELLS = """
    select k.row_id, k.column_id, k.status::text, k.definition_version, c.definition_version,
        k.user_value is not null, k.locked, k.computed_value, k.reason
    from cells k join columns c using (column_id)
    where k.collection_id = %s and c.kind is not null
"""
_CLAIMS = "select coalesce(sum(n), 0)::int, count(*)::int from claims where collection_id = %s"


class Silent:
    """Nobody needs to be told here."""

    async def announce(self, collection_id: CollectionId) -> None:
        del collection_id


@dataclass(eq=False, repr=False)
class Held:
    """A claimed cell in a worker's hands, and what the worker has read for it."""

    cell: ClaimedCell
    place: int
    decision: Decision | None = None
    version: int = 0

    @property
    def key(self) -> CellKey:
        return CellKey(self.cell.row_id, self.cell.column_id)

    def __repr__(self) -> str:
        return f"<{tuple(self.key)} place {self.place}: {type(self.decision).__name__}>"


@dataclass
class ModelClaim:
    lease_until: datetime
    left: int
    places: dict[CellKey, int]


@dataclass
class Model:
    """The table as the pure machine has it."""

    upstreams: dict[ColumnId, tuple[ColumnId, ...]]
    manual: frozenset[ColumnId]
    cells: dict[CellKey, machine.Cell] = field(default_factory=dict)
    forced: dict[CellKey, bool] = field(default_factory=dict)
    retry_at: dict[CellKey, datetime] = field(default_factory=dict)
    claims: dict[ClaimId, ModelClaim] = field(default_factory=dict)
    landed: dict[CellKey, Held] = field(default_factory=dict)

    def ready(self, key: CellKey) -> bool:
        """Whether every upstream of a cell is settled."""
        above = (CellKey(key.row_id, up) for up in self.upstreams.get(key.column_id, ()))
        return all(self.cells[up].settled for up in above if up in self.cells)

    def step(self, key: CellKey, event: machine.Event) -> None:
        self.cells[key] = machine.step(self.cells[key], event)
        if self.cells[key].settled:
            self.forced.pop(key, None)

    def release(self) -> None:
        """Blocked cells whose upstreams are settled get a place; the order does not matter."""
        for key, cell in self.cells.items():
            if cell.state is State.BLOCKED and self.ready(key):
                self.step(key, machine.Release())

    def ancestors(self, column: ColumnId, among: Iterable[ColumnId]) -> set[ColumnId]:
        among = set(among)
        found: set[ColumnId] = set()
        queue = [column]
        while queue:
            for up in self.upstreams.get(queue.pop(), ()):
                if up in among and up not in found:
                    found.add(up)
                    queue.append(up)
        return found

    def followers(self, roots: Iterable[ColumnId]) -> list[ColumnId]:
        """What recomputes by itself when the roots change, in topological order."""
        reached = set(roots)
        found = []
        for column, ups in self.upstreams.items():
            if column in reached or column in self.manual:
                continue
            if reached.intersection(ups):
                reached.add(column)
                found.append(column)
        return found

    def signal(
        self,
        row: RowId,
        explicit: Iterable[ColumnId],
        following: Iterable[ColumnId],
        *,
        forced: bool = False,
        passing: set[ColumnId] | None = None,
    ) -> None:
        """Signal columns of one row: those of `explicit` that pass, and what follows them."""
        asked = set(explicit) if passing is None else set(explicit) & passing
        plan = set(explicit) | set(following)
        for column in self.upstreams:
            if column not in plan:
                continue
            if column not in asked and not self.ancestors(column, plan) & asked:
                continue
            key = CellKey(row, column)
            cell = self.cells[key]
            self.step(key, machine.Signal(ready=self.ready(key)))
            if cell.overridden or cell.locked:
                continue
            self.retry_at.pop(key, None)
            self.forced[key] = (forced and column in asked) or self.forced.get(key, False)


class World:
    """The table on both sides, and the workers' hands."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.now = START
        self.blobs = Blobs(MemoryStore())
        self.queue = Queue(pool, now=self.now)
        self.dispatcher = Dispatcher(pool, self.queue, self.blobs, Silent())
        self.edits = Edits(pool, self.queue, self.blobs, self.dispatcher)
        self.keeper = ColumnKeeper(pool, self.queue)
        self.held: list[Held] = []
        self.done: list[Held] = []
        self.ids: dict[str, ColumnId] = {}
        self.inputs: dict[CellKey, JsonValue] = {}
        self.changed_columns: set[ColumnId] = set()
        self.model = Model(upstreams={}, manual=frozenset())
        self.collection_id = CollectionId(0)

    # -- the table ----------------------------------------------------------------------------

    async def create(self, columns: Mapping[str, tuple[str, str] | None], *, rows: int) -> None:
        """Make the table; `columns` by name: None for an input, else cost class and template."""
        name = f"machine_{id(self)}"
        async with self.pool.connection() as connection:
            definitions = Definitions(connection)
            await definitions.ensure_namespace(name, cap_cells=NAMESPACE_CAP)
            made = await definitions.create_collection(name, "t", cap_cells=COLLECTION_CAP)
            await connection.execute("update lane_clocks set vtime = 0")
        self.collection_id = made.collection_id
        for column, given in columns.items():
            draft = ColumnDraft(name=column)
            if given:
                draft = ColumnDraft(name=column, kind="template", template=given[1])
            self.ids[column] = await self.keeper.add(self.collection_id, draft, author="test")
            if given:
                await self._set_cost_class(self.ids[column], given[0])
        schema = await self.schema()
        for column in schema.computed:
            ups = tuple(u for u in column.upstreams if schema.by_id[u].computation)
            self.model.upstreams[column.column_id] = ups
        await self.append(rows)

    async def _set_cost_class(self, column_id: ColumnId, cost_class: str) -> None:
        async with self.pool.connection() as connection:
            await connection.execute(
                "update columns set cost_class = %s::cost_class where column_id = %s",
                [cost_class, column_id],
            )

    async def append(self, rows: int) -> None:
        schema = await self.schema()
        inputs = [c.column_id for c in schema.columns if not c.computation]
        fresh = [dict.fromkeys(inputs, f"{n}") for n in range(rows)]
        numbers = await self.edits.append_rows(self.collection_id, fresh, author="test")
        for number, values in zip(numbers, fresh, strict=True):
            self.inputs |= {CellKey(number, c): v for c, v in values.items()}
            for column in self.model.upstreams:
                self.model.cells[CellKey(number, column)] = machine.Cell(
                    definition=schema.by_id[column].definition_version
                )
            self.model.signal(number, self.model.upstreams, ())

    async def schema(self) -> Schema:
        async with self.pool.connection() as connection:
            return await Definitions(connection).load_schema(self.collection_id)

    async def destroy(self) -> None:
        async with self.pool.connection() as connection:
            await Definitions(connection).delete_collection(self.collection_id)

    @property
    def rows(self) -> list[RowId]:
        return sorted({key.row_id for key in self.model.cells})

    # -- edits --------------------------------------------------------------------------------

    async def set_input(self, row: RowId, column: str, value: str | None) -> None:
        key = CellKey(row, self.ids[column])
        if value is None:
            await self.edits.clear_cells(self.collection_id, [key], author="test")
            changed = key in self.inputs
            self.inputs.pop(key, None)
        else:
            await self.edits.set_cells(self.collection_id, {key: value}, author="test")
            changed = self.inputs.get(key) != value
            self.inputs[key] = value
        if changed:
            self.model.signal(row, self._readers(key.column_id), ())

    def _readers(self, column: ColumnId) -> list[ColumnId]:
        """Everything below an input column."""
        return self._followers_of_input.get(column, [])

    async def learn_readers(self) -> None:
        """What each input column reaches; again after a definition changed."""
        schema = await self.schema()
        self._followers_of_input: dict[ColumnId, list[ColumnId]] = {}
        for column in schema.columns:
            if column.computation:
                ups = tuple(u for u in column.upstreams if schema.by_id[u].computation)
                self.model.upstreams[column.column_id] = ups
            else:
                below = {c.column_id for c in schema.downstream([column.column_id])}
                order = [c.column_id for c in schema.computed]
                self._followers_of_input[column.column_id] = [c for c in order if c in below]
        order = [c.column_id for c in schema.computed]
        self.model.upstreams = {c: self.model.upstreams[c] for c in order}

    async def override(self, row: RowId, column: str, value: str) -> None:
        key = CellKey(row, self.ids[column])
        await self.edits.set_cells(self.collection_id, {key: value}, author="test")
        self.model.step(key, machine.Override())
        self.model.retry_at.pop(key, None)
        self.model.signal(row, self.model.followers([key.column_id]), ())
        self.model.release()

    async def reset(self, row: RowId, column: str) -> None:
        key = CellKey(row, self.ids[column])
        await self.edits.clear_cells(self.collection_id, [key], author="test")
        if not self.model.cells[key].overridden:
            return
        self.model.step(key, machine.Reset())
        self.model.signal(row, [key.column_id], ())
        self.model.signal(row, self.model.followers([key.column_id]), ())

    async def lock(self, row: RowId, column: str, *, locked: bool) -> None:
        key = CellKey(row, self.ids[column])
        await self.edits.lock_cells(self.collection_id, [key], locked=locked, author="test")
        if locked:
            self.model.step(key, machine.Lock())
            self.model.retry_at.pop(key, None)
        else:
            self.model.step(key, machine.Unlock())
            self.model.signal(row, [key.column_id], ())
        self.model.signal(row, self.model.followers([key.column_id]), ())
        self.model.release()

    async def delete_row(self, row: RowId) -> None:
        await self.edits.delete_rows(self.collection_id, [row], author="test")
        for key in [key for key in self.model.cells if key.row_id == row]:
            self._forget(key)

    def _forget(self, key: CellKey) -> None:
        del self.model.cells[key]
        for kept in (self.model.forced, self.model.retry_at, self.model.landed):
            kept.pop(key, None)

    async def redefine(self, column: str, template: str) -> None:
        """A new template; the cost class stays."""
        before = await self.schema()
        old = before.get(column)
        assert old.computation
        draft = ColumnDraft(name=column, kind="template", template=template)
        raised = await self.keeper.redefine(self.collection_id, column, draft, author="test")
        await self._set_cost_class(old.column_id, old.computation.cost_class)
        await self.learn_readers()
        if raised:
            for key in self.model.cells:
                if key.column_id == old.column_id:
                    self.model.step(key, machine.Redefine())
        self._reblock(old.column_id)

    def _reblock(self, column_id: ColumnId) -> None:
        """With other references a queued cell may have to wait, and a blocked one may go."""
        for key in self.model.cells:
            if key.column_id == column_id and not self.model.ready(key):
                self.model.step(key, machine.Block())
        self.model.release()

    async def drop_column(self, column: str) -> None:
        dropped = await self.keeper.drop(self.collection_id, column, cascade=True, author="test")
        gone = {item.column_id for item in dropped}
        for key in [key for key in self.model.cells if key.column_id in gone]:
            self._forget(key)
        self.model.upstreams = {c: u for c, u in self.model.upstreams.items() if c not in gone}
        self.ids = {name: key for name, key in self.ids.items() if key not in gone}
        await self.learn_readers()

    async def dispatch(
        self,
        columns: Sequence[str],
        rows: Sequence[RowId] | None,
        *,
        force: bool,
        only: Only | None,
        lane: Lane | None,
    ) -> None:
        asked = [self.ids[name] for name in columns]
        passing = {row: await self._passing(row, only) for row in self.rows}
        await self.dispatcher.dispatch(
            Request(
                collection_id=self.collection_id,
                columns=asked,
                rows=rows,
                force=force,
                only=only,
                lane=lane,
            )
        )
        explicit = [column for column in self.model.upstreams if column in asked]
        following = self.model.followers(explicit)
        for row in rows if rows is not None else self.rows:
            if row in self.rows:
                self.model.signal(row, explicit, following, forced=force, passing=passing[row])

    async def _passing(self, row: RowId, only: Only | None) -> set[ColumnId] | None:
        """The columns of a row that a restriction lets through; None: all."""
        if only is None:
            return None
        kept = {(r[0], r[1]): r for r in await self._query(_CELLS)}
        found: set[ColumnId] = set()
        for column in self.model.upstreams:
            if not self.model.cells[CellKey(row, column)].settled:
                continue
            status, old = "empty", False
            if row_ := kept.get((row, column)):
                status, old = row_[2], row_[3] is not None and row_[3] != row_[4]
            wanted = {
                Only.EMPTY: status == "empty",
                Only.OUTDATED: status == "outdated" or (status == "ready" and old),
                Only.UNFINISHED: status in {"empty", "waiting", "outdated", "failed"} or old,
                Only.FAILED: status == "failed",
                Only.NOT_FOUND: status == "not_found",
            }[only]
            if wanted:
                found.add(column)
        return found

    # -- workers ------------------------------------------------------------------------------

    async def claim(self, worker: str, *, interactive: int, bulk: int, total: int) -> int:
        capacities = [
            Capacity(
                cost_class=cost_class,
                interactive_max=interactive,
                bulk_max=bulk,
                total_max=total,
            )
            for cost_class in ("instant", "local", "remote")
        ]
        cells = await self.queue.claim(worker, capacities, lease_seconds=LEASE_SECONDS)
        self._check_claim(cells, interactive, bulk, total)
        for cell in cells:
            key = CellKey(cell.row_id, cell.column_id)
            assert self.model.cells[key].state is State.QUEUED, f"claimed {key} that is not queued"
            assert cell.signal == self.model.cells[key].signal
            assert cell.forced == self.model.forced[key]
            assert cell.tries == self.model.cells[key].tries
            self.model.step(key, machine.Claim())
            place = self.model.cells[key].place
            self.held.append(Held(cell, place))
            claim = self.model.claims.setdefault(
                cell.claim_id,
                ModelClaim(self.now + timedelta(seconds=LEASE_SECONDS), 0, {}),
            )
            claim.places[key] = place
            claim.left += 1
        self.held.sort(key=lambda item: (item.key, item.place))
        return len(cells)

    def _check_claim(
        self, cells: Sequence[ClaimedCell], interactive: int, bulk: int, total: int
    ) -> None:
        keys = [(cell.row_id, cell.column_id) for cell in cells]
        assert len(set(keys)) == len(keys), "a claim holds the same cell twice"
        for cost_class in ("instant", "local", "remote"):
            of_class = [cell for cell in cells if cell.cost_class == cost_class]
            by_lane = Counter(cell.interactive for cell in of_class)
            assert len(of_class) <= total
            assert by_lane[True] <= interactive
            assert by_lane[False] <= bulk

    async def read(self, held: Sequence[Held]) -> None:
        """A worker reads what some of its cells need, and decides."""
        schema = await self.schema()
        for item in held:
            item.decision, item.version = await self._decide(schema, item.key, item.cell.forced)

    async def _decide(
        self, schema: Schema, key: CellKey, forced: bool
    ) -> tuple[Decision | None, int]:
        column = schema.by_id.get(key.column_id)
        if column is None:
            return None, 0
        plan = make_plan(schema, column, get_kind("template").spec)
        ups = [up.column_id for up in plan.upstreams]
        async with self.pool.connection() as connection:
            found = await Cells(connection, self.blobs).read_inputs(
                self.collection_id, [key.row_id], [*ups, key.column_id]
            )
        given = [found.get((key.row_id, up)) for up in ups]
        values = [decode(g.value) if g and g.value is not None else None for g in given]
        own = found.get((key.row_id, key.column_id))
        return decide(plan, own, given, values, forced=forced), column.definition_version

    def outcome(self, item: Held, wish: OutcomeKind, delay_seconds: float) -> Outcome:
        """What a worker says of a cell: `wish` where it is to be computed."""
        match item.decision:
            case Compute(request, input_hash):
                value = f'"{request.text}"' if wish is OutcomeKind.READY else None
                reason = None if wish is OutcomeKind.READY else f'{{"code": "{wish}"}}'
                return Outcome(
                    item.cell,
                    item.version,
                    wish,
                    value=value,
                    reason=reason,
                    input_hash=input_hash,
                    delay_seconds=delay_seconds if wish is OutcomeKind.RETRY else 0.0,
                )
            case Unchanged():
                return Outcome(item.cell, item.version, OutcomeKind.UNCHANGED)
            case Waiting(code, column):
                reason = f'{{"code": "{code}", "column": "{column}"}}'
                return Outcome(item.cell, item.version, OutcomeKind.WAITING, reason=reason)
            case Pinned():
                reason = '{"code": "input_changed"}'
                return Outcome(item.cell, item.version, OutcomeKind.OUTDATED, reason=reason)
            case None:
                return Outcome(item.cell, item.version, OutcomeKind.FAILED)

    async def finalize(
        self, items: Sequence[Held], wishes: Sequence[OutcomeKind], *, delay_seconds: float = 0.0
    ) -> None:
        """Bring cells home, at most one result a cell; late and repeated ones too."""
        by_key = {item.key: item for item in items}
        items = list(by_key.values())
        outcomes = [
            self.outcome(item, wish, delay_seconds)
            for item, wish in zip(items, wishes, strict=False)
        ]
        ended = self._count_down(items)
        verdicts = await self.queue.finalize(self.collection_id, outcomes, ended=ended)
        for claim_id in ended:
            self.model.claims.pop(claim_id, None)
        for item, outcome in zip(items, outcomes, strict=True):
            self._land(item, outcome)
        self.model.release()
        stood = {key for key in by_key if key in verdicts}
        assert stood == self._stood, f"verdicts for {stood}, the model's for {self._stood}"

    def _count_down(self, items: Sequence[Held]) -> list[ClaimId]:
        ended: list[ClaimId] = []
        self._stood: set[CellKey] = set()
        for item in items:
            if item in self.held:
                self.held.remove(item)
                self.done.append(item)
                claim = self.model.claims.get(item.cell.claim_id)
                if claim:
                    claim.left -= 1
                    if claim.left == 0:
                        ended.append(item.cell.claim_id)
        return ended

    def _land(self, item: Held, outcome: Outcome) -> None:
        cell = self.model.cells.get(item.key)
        if cell is None or cell.state is not State.COMPUTING or cell.place != item.place:
            return
        self._stood.add(item.key)
        token = machine.Token(place=item.place, signal=item.cell.signal, definition=outcome.version)
        result = RESULTS[outcome.kind]
        self.model.step(item.key, machine.Finalize(token=token, result=result, ready=False))
        after = self.model.cells[item.key]
        if after.settled:
            self.model.landed[item.key] = item
        if after.state is State.RETRYING:
            self.model.retry_at[item.key] = self.now + timedelta(seconds=outcome.delay_seconds)

    async def give_back(self, claim_id: ClaimId) -> None:
        await self.queue.give_back(self.collection_id, [claim_id])
        claim = self.model.claims.pop(claim_id, None)
        if claim:
            self._end_claim(claim, machine.GiveBack(ready=False))

    def _end_claim(self, claim: ModelClaim, event: machine.Event) -> None:
        for key, place in claim.places.items():
            cell = self.model.cells.get(key)
            if cell and cell.state is State.COMPUTING and cell.place == place:
                self.model.step(key, event)
        self.model.release()

    async def renew(self, claim_id: ClaimId) -> None:
        await self.queue.renew([claim_id], lease_seconds=LEASE_SECONDS)
        if claim_id in self.model.claims:
            until = self.now + timedelta(seconds=LEASE_SECONDS)
            self.model.claims[claim_id].lease_until = until

    @property
    def claims(self) -> list[ClaimId]:
        """Live claims, in an order that does not depend on their numbers."""
        found = self.model.claims
        return sorted(found, key=lambda claim_id: sorted(found[claim_id].places.items()))

    # -- time and the janitor -----------------------------------------------------------------

    def pass_time(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        self.queue.now = self.now

    async def reclaim(self) -> None:
        await self.queue.reclaim()
        expired = [c for c, claim in self.model.claims.items() if claim.lease_until < self.now]
        for claim_id in expired:
            self._end_claim(self.model.claims.pop(claim_id), machine.Expire(ready=False))

    async def retry_due(self) -> None:
        await self.queue.retry_due()
        for key in [key for key, at in self.model.retry_at.items() if at <= self.now]:
            del self.model.retry_at[key]
            self.model.step(key, machine.RetryDue(ready=False))
        self.model.release()

    async def heal(self) -> None:
        healed = await self.queue.heal()
        assert healed.strays == 0, "ordinary steps left something that only healing moves"

    # -- agreement ----------------------------------------------------------------------------

    async def _query(self, text: str) -> list[tuple[Any, ...]]:
        async with self.pool.connection() as connection:
            cursor = await connection.execute(text.encode(), [self.collection_id])
            return await cursor.fetchall()

    async def check(self) -> None:
        """Both sides agree on every cell, and the queue's invariants hold."""
        entries = {CellKey(r[0], r[1]): r[2:] for r in await self._query(_ENTRIES)}
        kept = {CellKey(r[0], r[1]): r[2:] for r in await self._query(_CELLS)}
        self._check_queue(entries)
        assert entries.keys() <= self.model.cells.keys(), "an entry without a cell"
        for key, cell in self.model.cells.items():
            self._check_cell(key, cell, entries.get(key), kept.get(key))
        ((in_flight, claims),) = await self._query(_CLAIMS)
        assert in_flight <= COLLECTION_CAP, "the collection's cap is exceeded"
        assert claims == len(self.model.claims), "a claim leaked"

    def _check_queue(self, entries: Mapping[CellKey, Sequence[Any]]) -> None:
        places = [(entry[0], entry[1]) for entry in entries.values() if entry[1] is not None]
        assert len(set(places)) == len(places), "two entries share a number of a lane"
        for key, (_, seq, _, _, _, _, state, claims, tail, _) in entries.items():
            assert tail is not None, f"{key} is in no lane"
            assert seq is None or seq <= tail, f"{key} is beyond its lane's tail"
            if state == "computing":
                assert claims == 1, f"{key} is computed under {claims} claims"
            if state == "blocked":
                ups = self.model.upstreams[key.column_id]
                assert any(CellKey(key.row_id, up) in entries for up in ups), f"{key} is stuck"

    def _check_cell(
        self,
        key: CellKey,
        cell: machine.Cell,
        entry: Sequence[Any] | None,
        kept: Sequence[Any] | None,
    ) -> None:
        status, version, present, overridden, locked, _, _ = kept or (
            ("empty", None, None, False, False, None, None)
        )
        name = f"{key}: {cell}, entry {entry}, kept {kept}"
        assert (cell.overridden, cell.locked) == (overridden, locked), name
        if entry is None:
            assert cell.state is STATUS_STATES[status], name
        else:
            assert cell.state is ENTRY_STATES[entry[6]], name
            assert (cell.signal, cell.rounds, cell.tries) == tuple(entry[2:5]), name
            assert self.model.forced[key] == entry[5], name
            assert cell.settled_as is STATUS_STATES[status], name
        if cell.settled_as is State.DONE:
            old = status in {"ready", "not_found"} and version != present
            assert cell.outdated == (status == "outdated" or old), name

    # -- the end ------------------------------------------------------------------------------

    async def settle(self) -> None:
        """No more signals: workers run until nothing is unsettled, without any healing."""
        for _ in range(limits.LOST_TRIES_MAX * 5):
            self.pass_time(LEASE_SECONDS + 1)
            await self.retry_due()
            if self.held:
                await self.read([item for item in self.held if item.decision is None])
                await self.finalize(self.held[:], [OutcomeKind.READY] * len(self.held))
            await self.reclaim()
            if all(cell.settled for cell in self.model.cells.values()):
                return
            await self.claim("last", interactive=50, bulk=50, total=50)
        raise AssertionError(f"something never settles: {self.model.cells}")

    async def check_converged(self) -> None:
        """Every settled cell is what its newest inputs and definition make it, or says outdated."""
        schema = await self.schema()
        kept = {CellKey(r[0], r[1]): r[2:] for r in await self._query(_CELLS)}
        for key, cell in self.model.cells.items():
            assert cell.settled, f"{key} is not settled"
            if cell.overridden or cell.locked or cell.outdated:
                continue
            now, version = await self._decide(schema, key, forced=False)
            name = f"{key}: {cell}, kept {kept.get(key)}, now {now}"
            if cell.state is State.DONE:
                assert isinstance(now, Unchanged), name
            elif kept[key][0] == "waiting":
                # under an old definition it says outdated, and waits to be asked for
                assert isinstance(now, Waiting) or kept[key][1] != kept[key][2], name
            elif cell.state is State.ERROR:
                self._check_failed(key, now, version, name)

    def _check_failed(self, key: CellKey, now: Decision | None, version: int, name: str) -> None:
        """A failure belongs to the newest inputs, unless the definition changed since."""
        landed = self.model.landed[key]
        if landed.version == version and isinstance(landed.decision, Compute):
            assert isinstance(now, Compute), name
            assert now.input_hash == landed.decision.input_hash, name
