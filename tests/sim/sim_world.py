"""One simulated installation: a database, workers, janitors, people, and what goes wrong."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast
from unittest.mock import patch

import psycopg
import sim_claim_sql  # noqa: F401 - it registers statements
import sim_fill_sql  # noqa: F401 - the same
import sim_heal_sql  # noqa: F401 - the same
import sim_table_sql  # noqa: F401 - the same
import structlog
from obstore.store import MemoryStore
from sim_checks import Checks
from sim_kinds import Calls, SimKind
from sim_loop import PROCESS, Process, SimLoop
from sim_people import COST_CLASSES, TEMPLATES, People
from sim_postgres import START, Faults, Server, SimConnection, SimPool
from sim_rows import CellRow, CollectionRow, ColumnRow, Key, NamespaceRow

from everfill.autofill import calls, cell_worker, columns, filler, immediate
from everfill.autofill.cell_worker import CellWorker
from everfill.autofill.dispatch import Dispatcher, Request
from everfill.autofill.immediate import Immediate
from everfill.autofill.janitor import Janitor
from everfill.autofill.queue import Queue, Spent
from everfill.compute.protocol import ComputeContext, CostClass
from everfill.infra.blobs import Blobs
from everfill.infra.postgres import OUTAGES
from everfill.kernel import limits
from everfill.kernel.config import WorkerSettings
from everfill.kernel.ids import CollectionId, ColumnId
from everfill.tables import templates

LEASE_SECONDS = 6.0
STORM_SECONDS = (10.0, 40.0)
PATIENCE_SECONDS = 1_500.0
HOT_SHARE = 0.4  # seeds where everything happens to one row
PURE_SHARE = 0.25  # seeds with one or two kinds of fault, for the checks that only those allow
ROWS_MAX = 8
LATE_SHARE = 0.4  # seeds where people ask for the first cells, in the middle of the storm
_BLOBS = Blobs(MemoryStore())
_OUR_FAULTS = {"cell_worker.fault", "finalize.fault", "janitor.step_failed"}


@dataclass(frozen=True)
class Profile:
    """What may go wrong in one run: each seed has its own mixture."""

    edits: bool
    failures: bool
    kills: bool
    stops: bool
    pills: bool
    freezes: bool
    outages: bool
    cuts: bool
    lag: bool
    clock: bool

    @classmethod
    def draw(cls, chance: random.Random) -> Profile:
        names = list(cls.__dataclass_fields__)
        if chance.random() < PURE_SHARE:
            chosen = {chance.choice(names), chance.choice(["kills", "pills", "stops"])}
            return cls.of(*chosen)
        share = chance.choice([0.0, 0.2, 0.5, 0.8])
        return cls(**{name: chance.random() < share for name in names})

    @classmethod
    def of(cls, *names: str) -> Profile:
        return cls(**{name: name in names for name in cls.__dataclass_fields__})

    @property
    def calm(self) -> bool:
        """Whether nothing goes wrong with the machines."""
        rough = (
            self.kills,
            self.stops,
            self.pills,
            self.freezes,
            self.outages,
            self.cuts,
            self.lag,
        )
        return not any((*rough, self.clock))

    @property
    def only_kills(self) -> bool:
        """Whether leases run out for no other reason than a killed worker."""
        return not any((self.freezes, self.outages, self.cuts, self.lag, self.clock))


@dataclass(frozen=True)
class Report:
    """What came of one seed."""

    seed: int
    failures: Sequence[str]
    trace: Sequence[str]
    commits: int
    told: Mapping[str, int]
    seconds: float

    @property
    def digest(self) -> str:
        return hashlib.sha256("\n".join(self.trace).encode()).hexdigest()


class _LoopClock:
    """The worker's clock is the loop's."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic_seconds(self) -> float:
        return self._loop.time()


class World:
    """The simulation of one seed.

    Args:
        seed: Decides everything.
        traced: Whether every step is noted.
        profile: What may go wrong; None: as the seed has it.
    """

    def __init__(self, seed: int, *, traced: bool = False, profile: Profile | None = None) -> None:
        self.seed = seed
        self.traced = traced
        self.chance = random.Random(seed)
        self.profile = profile or Profile.draw(self.chance)
        self.stormy = True
        self.lease_seconds = LEASE_SECONDS
        self.loop = SimLoop(self.chance)
        self.checks = Checks(self)
        self.server = Server(self.loop, self.chance, self.checks)
        self.blobs = _BLOBS
        self.calls = Calls()
        self.kinds = {f"sim:{c}": SimKind(self, c) for c in CostClass}
        self.collections: list[int] = []
        self.hot = self.chance.random() < HOT_SHARE
        self.rows = 1 if self.hot else self.chance.randint(1, 3)
        self.held_at_kills = 0
        self.killed: set[str] = set()
        self._numbers = 0
        self._spawned = 0
        self._processes: list[Process] = []
        self._workers: dict[Process, CellWorker] = {}

    # -- the run ----------------------------------------------------------------------------------

    def run(self) -> Report:
        gc.disable()  # a collection in mid-run would finalize in an order of its own
        try:
            with self._patched():
                asyncio.set_event_loop(self.loop)
                self.loop.run_until_complete(self._main())
                seconds = self.loop.time()
                self.loop.bury(self._processes)
                self.loop.run_until_complete(self.loop.shutdown_asyncgens())
                self.loop.close()
        finally:
            asyncio.set_event_loop(None)
            gc.enable()
        checks = self.checks
        return Report(
            self.seed, checks.failures, checks.trace, checks.commits, checks.told, seconds
        )

    async def _main(self) -> None:
        self.checks.note("profile", self.profile, "rows", self.rows)
        self._create()
        pool = cast("Any", SimPool(self.server))
        dispatcher = self.dispatcher(pool, Queue(pool))
        if not (self.profile.edits and self.chance.random() < LATE_SHARE):
            await self._dispatch_all(dispatcher)
        self._start()
        await self._storm()
        self._calm_down()
        await self._settle(dispatcher)
        await self._drain()
        if not self.checks.failures:
            async with pool.connection() as connection:
                await self.checks.check_values(cast("Any", connection))
            self.checks.check_counts()

    async def _dispatch_all(self, dispatcher: Dispatcher) -> None:
        """Ask for every cell before anything can go wrong."""
        for collection_id in self.collections:
            await dispatcher.dispatch(Request(collection_id=CollectionId(collection_id)))
            for row_id in range(1, self.rows + 1):
                for name in COST_CLASSES:
                    key = Key(collection_id, row_id, self.column(collection_id, name))
                    self.checks.wanted.add(key)

    def _start(self) -> None:
        for _ in range(self.chance.randint(1, 3)):
            self._start_worker()
        for _ in range(self.chance.randint(1, 2)):
            self._spawn("janitor", self._keep_house())
        if self.profile.edits:
            pause_seconds = self.chance.choice([0.3, 1.0, 3.0, 10.0])
            for _ in range(self.chance.randint(1, 2)):
                self._spawn("people", People(self, pause_seconds=pause_seconds).live())
        rough = self.chance.uniform(0.002, 0.03) if self.profile.cuts else 0.0
        lag = self.chance.uniform(0.002, 0.05) if self.profile.lag else 0.0
        self.server.faults = Faults(rough, rough, lag, LEASE_SECONDS * 1.5)

    async def _storm(self) -> None:
        end = self.loop.time() + self.chance.uniform(*STORM_SECONDS)
        actions = {
            self._kill_one: self.profile.kills,
            self._stop_one: self.profile.stops,
            self._freeze_one: self.profile.freezes,
            self._go_down: self.profile.outages,
            self._set_clock: self.profile.clock,
        }
        possible = [action for action, enabled in actions.items() if enabled]
        while self.loop.time() < end and not self.checks.failures:
            await asyncio.sleep(self.chance.uniform(0.5, 4.0))
            if possible:
                self.chance.choice(possible)()

    def _calm_down(self) -> None:
        self.checks.note("calm")
        self.stormy = False
        self.server.faults = Faults()
        self.server.down = False
        for process in self._processes:
            if process.name.startswith("people"):
                self._end(process)
            if process.frozen:
                self.loop.thaw(process)
        if not any(process in self._workers for process in self._living("worker")):
            self._start_worker()
        if not self._living("janitor"):
            self._spawn("janitor", self._keep_house())

    async def _settle(self, dispatcher: Dispatcher) -> None:
        deadline = self.loop.time() + PATIENCE_SECONDS
        for lane in list(self.server.database.tables["lanes"].values()):
            if lane.paused:
                await dispatcher.set_paused(lane.run_id, paused=False)
        while not (self.checks.settled and self._hands_empty) and not self.checks.failures:
            if self.loop.time() > deadline:
                left = len(self.server.database.tables["queue"])
                self.checks.fail(f"{left} cells never settle")
            await asyncio.sleep(1.0)

    @property
    def _hands_empty(self) -> bool:
        """Whether no worker computes for nothing any more what was taken from it."""
        working = [w for p, w in self._workers.items() if not p.dead]
        return not any(w._tasks or w._finalizer._tasks for w in working)

    async def _drain(self) -> None:
        """Tell the workers to stop: they leave nothing behind."""
        for process in [p for p in self._living("worker") if p in self._workers]:
            worker = self._workers[process]
            worker.stop()
            assert process.task
            await asyncio.wait([process.task], timeout=60)
            held = +worker._held, +worker._held_by_lane, worker._finalizer.claims
            if not self.checks.failures and (any(held) or not process.task.done()):
                self.checks.fail(f"{process.name} keeps {held}")

    # -- the table --------------------------------------------------------------------------------

    def fresh(self) -> str:
        """A value to type: a number greater than all before."""
        self._numbers += 1
        return f"{self._numbers}"

    def new_row(self) -> int | None:
        """The number of a row that arrives; None where enough have."""
        if self.rows >= ROWS_MAX:
            return None
        self.rows += 1
        return self.rows

    def column(self, collection_id: int, name: str) -> int:
        return self._ids[collection_id, name]

    def _create(self) -> None:
        """Two namespaces with two collections in one and one in the other."""
        tables = self.server.database.tables
        self._ids: dict[tuple[int, str], int] = {}
        for namespace_id in (1, 2):
            cap = self.chance.randint(2, 9)
            weight = self.chance.choice([1.0, 3.0])
            tables["namespaces"][namespace_id] = NamespaceRow(cap_cells=cap, weight=weight)
        for collection_id in range(1, 2 if self.hot else self.chance.randint(2, 4)):
            self.collections.append(collection_id)
            tables["collections"][collection_id] = CollectionRow(
                namespace_id=1 + collection_id // 3, cap_cells=self.chance.randint(1, 7)
            )
            self._create_columns(collection_id)
            for row_id in range(1, self.rows + 1):
                tables["rows"][collection_id, row_id] = True
                for name in "xy":
                    key = Key(collection_id, row_id, self.column(collection_id, name))
                    kept = CellRow(user_value=f'"{self.fresh()}"', status="ready")
                    tables["cells"][key] = kept

    def _create_columns(self, collection_id: int) -> None:
        tables = self.server.database.tables
        clock = self.chance.random() < 0.3 and self.profile.edits
        for position, name in enumerate("xyabcde", start=1):
            column_id = self._ids[collection_id, name] = self.server.database.next_id("columns")
            text = TEMPLATES.get(name, ["e({{d}})"])[0] if name in COST_CLASSES else None
            names = {n: ColumnId(i) for (c, n), i in self._ids.items() if c == collection_id}
            stored = templates.bind(text, names) if text else None
            schedule = ("cron" if clock else "never") if name == "e" else "on_change"
            tables["columns"][column_id] = ColumnRow(
                collection_id=collection_id,
                name=name,
                position=position,
                type={"name": "text"},
                kind=f"sim:{COST_CLASSES[name]}" if text else None,
                template=stored,
                cost_class=COST_CLASSES.get(name),
                created_at=START,
                schedule=schedule,
                cron="* * * * *" if schedule == "cron" else None,
            )
            if stored:
                tables["references"][column_id] = templates.references(stored)

    def dispatcher(self, pool: Any, queue: Queue) -> Dispatcher:
        """One that fills pure columns at once."""
        nothing = cast("ComputeContext", None)
        immediate = Immediate(blobs=self.blobs, context=nothing, sink=self)
        return Dispatcher(pool, queue, self.blobs, self, immediate)

    # -- processes --------------------------------------------------------------------------------

    def _spawn(self, kind: str, work: Any) -> Process:
        self._spawned += 1
        process = self.loop.spawn(f"{kind}-{self._spawned}", work)
        self._processes.append(process)
        assert process.task
        process.task.add_done_callback(self._ended, context=self.loop.server_context)
        self.checks.note("start", process.name)
        return process

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not self.loop.buried and not task.cancelled() and task.exception():
            self.checks.fail(f"a process crashed: {task.exception()!r}")

    def _start_worker(self) -> None:
        pool = cast("Any", SimPool(self.server))
        worker = CellWorker(
            pool=pool,
            queue=Queue(pool),
            blobs=self.blobs,
            sink=self,
            context=cast("ComputeContext", None),
            settings=WorkerSettings(
                slots=self.chance.randint(1, 5), lease_seconds=LEASE_SECONDS, drain_seconds=4.0
            ),
            clock=_LoopClock(self.loop),
        )
        process = self._spawn("worker", worker.run())
        worker.name = process.name
        self._workers[process] = worker

    async def _keep_house(self) -> None:
        pool = cast("Any", SimPool(self.server))
        queue = Queue(pool)
        janitor = Janitor(pool, queue, self.dispatcher(pool, queue))
        while True:
            await asyncio.sleep(self.chance.uniform(4.0, 12.0))
            try:
                report = await janitor.tick()
            except OUTAGES:
                continue
            if report.strays or report.failed_steps:
                self.checks.fail(f"the janitor had to heal: {report}")

    def _living(self, kind: str) -> list[Process]:
        return [p for p in self._processes if p.name.startswith(kind) and not p.dead]

    # -- what goes wrong --------------------------------------------------------------------------

    def kill(self, process: Process) -> None:
        """End a process at once, and start another of its kind a little later."""
        self._end(process)
        kind = process.name.partition("-")[0]
        again = {"worker": self._start_worker}.get(kind)
        if again:
            pause = self.chance.uniform(0.1, 3.0)
            self.loop.call_later(pause, again, context=self.loop.server_context)
        elif kind == "janitor":
            self._spawn("janitor", self._keep_house())
        else:
            self._spawn("people", People(self, pause_seconds=1.0).live())

    def _end(self, process: Process) -> None:
        self.checks.note("kill", process.name)
        process.dead = True
        self.killed.add(process.name)
        self.held_at_kills += self._held(process.name)
        self.server.cut(process)

    def _held(self, worker: str) -> int:
        claims = self.server.database.tables["claims"].values()
        return sum(claim.n for claim in claims if claim.worker == worker)

    def _kill_one(self) -> None:
        alive = [process for process in self._processes if process.runs]
        if alive:
            self.kill(self.chance.choice(alive))

    def _stop_one(self) -> None:
        """Replace a worker as a new release would: it drains, and gives back the rest."""
        workers = [process for process in self._workers if process.runs]
        if workers:
            process = self.chance.choice(workers)
            self.checks.note("stop", process.name)
            self._workers.pop(process).stop()
            self._start_worker()

    def _freeze_one(self) -> None:
        alive = [process for process in self._processes if process.runs]
        if alive:
            process = self.chance.choice(alive)
            process.frozen = True
            self.checks.note("freeze", process.name)
            self.loop.call_later(
                self.chance.uniform(0.5, LEASE_SECONDS * 4), self.loop.thaw, process
            )

    def _go_down(self) -> None:
        self.checks.note("outage")
        self.server.down = True
        self.server.cut()
        self.loop.call_later(self.chance.uniform(0.2, LEASE_SECONDS * 2), self._come_up)

    def _come_up(self) -> None:
        self.server.down = False

    def _set_clock(self) -> None:
        self.server.offset_seconds += self.chance.choice([-30.0, -3.0, 3.0, 30.0])
        self.checks.note("clock", self.server.offset_seconds)

    # -- what the production code is given --------------------------------------------------------

    async def announce(self, collection_id: CollectionId) -> None:
        """Nobody needs to be told here."""
        del collection_id

    async def completed(
        self,
        collection_id: CollectionId,
        counts: Mapping[tuple[ColumnId, str], int],
        spent: Sequence[Spent],
    ) -> None:
        """A completion may take a while to tell."""
        del collection_id, counts, spent
        await asyncio.sleep(self.chance.uniform(0.0, 0.01))

    async def _connect(self, _url: str, **_options: Any) -> SimConnection:
        if self.server.down:
            raise psycopg.OperationalError("nobody answers")
        return self.server.connect()

    def _log(self, _logger: Any, _method: str, event: dict[str, Any]) -> dict[str, Any]:
        process = PROCESS.get()
        self.checks.note(process.name if process else "-", "logs", event["event"])
        if event["event"] in _OUR_FAULTS and not self.loop.buried:
            self.checks.fail(f"{event['event']}: {event.get('exc_info')!r}")
        raise structlog.DropEvent

    @contextmanager
    def _patched(self) -> Iterator[None]:
        """Chance, kinds and connections of this world instead of the machine's."""
        few = self.chance.random() < 0.7
        changes: list[tuple[Any, str, Any]] = [
            (cell_worker, "_RANDOM", self.chance),
            (calls, "_JITTER", self.chance),
            (filler, "get_kind", self.kinds.__getitem__),
            (columns, "get_kind", self.kinds.__getitem__),
            (immediate, "get_kind", self.kinds.__getitem__),
            (limits, "IMMEDIATE_CHUNK_CELLS", self.chance.choice([1, 8, 2_000])),
            (psycopg.AsyncConnection, "connect", staticmethod(self._connect)),
            (limits, "LOST_TRIES_MAX", 2 if few else limits.LOST_TRIES_MAX),
            (limits, "TRIES_MAX", 3 if few else limits.TRIES_MAX),
            (cell_worker, "INSTANT_ROOM_CELLS", self.chance.choice([4, 40])),
            (cell_worker, "INSTANT_CLAIM_CELLS", self.chance.choice([1, 4])),
            (cell_worker, "LOCAL_ROOM_CELLS", self.chance.choice([1, 3, 12])),
        ]
        before = structlog.get_config()
        structlog.configure(processors=[self._log], cache_logger_on_first_use=False)
        try:
            with ExitStack() as stack:
                for owner, name, value in changes:
                    stack.enter_context(patch.object(owner, name, value))
                yield
        finally:
            structlog.configure(**before)
