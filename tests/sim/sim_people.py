"""People: edits, definitions, runs, and locks, through the real services."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from sim_postgres import SimPool
from sim_table_sql import BRING

from everfill.autofill.columns import ColumnDraft, ColumnKeeper
from everfill.autofill.dispatch import Lane, Only, Request
from everfill.autofill.edits import Edits
from everfill.autofill.queue import Queue
from everfill.infra.postgres import OUTAGES
from everfill.kernel.errors import EverfillError
from everfill.kernel.ids import CellKey, CollectionId, ColumnId, RowId, RunId
from everfill.tables.schema import Schedule

if TYPE_CHECKING:
    from sim_world import World

TEMPLATES = {
    "a": ["a({{x}})", "A({{x}})"],
    "b": ["b({{a}})", "B({{a}},{{c}})", "b({{y}})"],
    "c": ["c({{a}},{{y}})", "C({{y}})"],
    "d": ["d({{b}},{{c}})", "D({{c}})"],
}
COST_CLASSES = {"a": "instant", "b": "remote", "c": "local", "d": "instant", "e": "remote"}
RUNS_KEPT = 5


class People:
    """One person, or many: one action after the other."""

    def __init__(self, world: World, *, pause_seconds: float) -> None:
        self._world = world
        self._chance = world.chance
        self._pause_seconds = pause_seconds
        pool = cast("Any", SimPool(world.server))
        self._pool = pool
        queue = Queue(pool)
        self.dispatcher = world.dispatcher(pool, queue)
        self._edits = Edits(pool, queue, world.blobs, self.dispatcher)
        self._keeper = ColumnKeeper(pool, queue)
        self._runs: list[tuple[CollectionId, RunId]] = []

    async def live(self) -> None:
        while True:
            await asyncio.sleep(self._chance.uniform(0.0, self._pause_seconds))
            try:
                await self._act()
            except (EverfillError, *OUTAGES):  # told to a person, who goes on
                continue

    async def _act(self) -> None:
        match self._chance.choices(range(10), [10, 6, 3, 3, 3, 8, 2, 2, 3, 1])[0]:
            case 0:
                await self._type()
            case 1:
                await self._dispatch()
            case 2:
                await self._override()
            case 3:
                await self._edits.clear_cells(*self._some("abcde"), author="test")
            case 4:
                locked = self._chance.random() < 0.4
                await self._edits.lock_cells(*self._some("abcde"), locked=locked, author="test")
            case 5:
                await self._redefine()
            case 6:
                await self._handle_run()
            case 7:
                await self._storm()
            case 8:
                await self._bring()
            case _:
                await self._delete()

    def _collection(self) -> CollectionId:
        return CollectionId(self._chance.choice(self._world.collections))

    def _some(self, names: str) -> tuple[CollectionId, list[CellKey]]:
        collection_id = self._collection()
        count = self._chance.randint(1, 2)
        return collection_id, [self._key(collection_id, names) for _ in range(count)]

    def _key(self, collection_id: CollectionId, names: str) -> CellKey:
        column_id = self._world.column(collection_id, self._chance.choice(names))
        return CellKey(RowId(self._chance.randint(1, self._world.rows)), ColumnId(column_id))

    async def _type(self) -> None:
        collection_id, keys = self._some("xy")
        if self._chance.random() < 0.1:
            await self._edits.clear_cells(collection_id, keys, author="test")
            return
        values = {key: self._world.fresh() for key in keys}
        await self._edits.set_cells(collection_id, values, author="test")

    async def _override(self) -> None:
        collection_id, keys = self._some("abcde")
        values = {key: f"{self._world.fresh()}!" for key in keys}
        await self._edits.set_cells(collection_id, values, author="test")

    async def _dispatch(self) -> None:
        collection_id = self._collection()
        names = self._chance.sample("abcde", self._chance.randint(1, 3))
        row = RowId(self._chance.randint(1, self._world.rows))
        request = Request(
            collection_id=collection_id,
            columns=[ColumnId(self._world.column(collection_id, name)) for name in names],
            rows=self._chance.choice([None, [row]]),
            only=self._chance.choice([None, None, *Only]),
            force=self._chance.random() < 0.5,
            lane=self._chance.choice([None, *Lane]),
            weight=self._chance.choice([0.5, 1.0, 3.0]),
        )
        done = await self.dispatcher.dispatch(request)
        if done.run_id:
            self._runs = [*self._runs, (collection_id, done.run_id)][-RUNS_KEPT:]

    async def _redefine(self) -> None:
        name = self._chance.choice([*TEMPLATES])
        draft = ColumnDraft(
            name=name,
            kind=f"sim:{COST_CLASSES[name]}",
            template=self._chance.choice(TEMPLATES[name]),
            schedule=Schedule(),
        )
        await self._keeper.redefine(self._collection(), name, draft, author="test")

    async def _handle_run(self) -> None:
        if not self._runs:
            return
        collection_id, run_id = self._chance.choice(self._runs)
        if self._chance.random() < 0.4:
            await self.dispatcher.cancel(collection_id, run_id)
        else:
            paused = self._chance.random() < 0.5
            await self.dispatcher.set_paused(run_id, paused=paused)

    async def _storm(self) -> None:
        """One cell is typed again and again."""
        collection_id = self._collection()
        key = self._key(collection_id, "xy")
        for _ in range(self._chance.randint(3, 8)):
            await self._edits.set_cells(collection_id, {key: self._world.fresh()}, author="test")

    async def _bring(self) -> None:
        """A row arrives, and all of it is asked for."""
        collection_id = self._collection()
        values = {self._world.column(collection_id, name): self._world.fresh() for name in "xy"}
        row = self._world.new_row()
        if row is None:
            return
        params = {"collection_id": collection_id, "row": row, "values": values}
        async with self._pool.connection() as connection:
            await connection.execute(BRING, params)
        for _ in range(self._chance.randint(1, 2)):  # some ask twice
            await self.dispatcher.dispatch(Request(collection_id=collection_id))

    async def _delete(self) -> None:
        row = RowId(self._chance.randint(1, self._world.rows))
        await self._edits.delete_rows(self._collection(), [row], author="test")
