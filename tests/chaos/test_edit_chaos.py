"""Whatever people change in mid-run, and however results repeat or come late, the newest stands."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from rig import COLLECTION_CAP, Rig, open_rig, worker_parts

from engine import Engine
from everfill.autofill.cell_worker import CellWorker
from everfill.autofill.columns import ColumnDraft
from everfill.autofill.dispatch import Only, Request
from everfill.kernel.ids import CollectionId, RowId

SLOW = {"seconds": 0.02}
DRAFTS = [
    ColumnDraft(name="one", kind="test:slow", template="1 {{word}}", options=SLOW),
    ColumnDraft(name="two", kind="test:count", template="2 {{one}}"),
    ColumnDraft(name="three", kind="test:slow", template="3 {{two}} {{word}}", options=SLOW),
    ColumnDraft(name="four", kind="test:count", template="4 {{three}} {{one}}"),
]
REPEAT_CHANCE = 0.3
LATE_CHANCE = 0.2


@dataclass
class Crowd:
    """People who change a table while it fills."""

    rig: Rig
    table: CollectionId
    drafts: dict[str, ColumnDraft]
    rows: list[RowId]
    forced: int = 0  # cells that were computed anew for one text because somebody wanted it

    @property
    def engine(self) -> Engine:
        return self.rig.engine

    async def act(self) -> None:
        actions: list[Callable[[], Awaitable[object]]] = [
            self.edit,
            self.edit,
            self.override,
            self.reset,
            self.redefine,
            self.delete_row,
            self.append_row,
            self.drop_column,
            self.lock,
            self.reprocess,
        ]
        await self.rig.chance.choice(actions)()

    def some_cell(self, *names: str) -> tuple[RowId, str]:
        return self.rig.chance.choice(self.rows), self.rig.chance.choice(names)

    async def edit(self) -> None:
        row, name = self.some_cell("word")
        await self.engine.set(self.table, row, name, self.some_word())

    async def override(self) -> None:
        row, name = self.some_cell(*self.drafts)
        await self.engine.set(self.table, row, name, self.some_word())

    async def reset(self) -> None:
        """Take every override of a column back."""
        name = self.rig.chance.choice(list(self.drafts))
        cells = [await self.engine.key(self.table, row, name) for row in self.rows]
        await self.engine.edits.clear_cells(self.table, cells, author="test")

    async def lock(self) -> None:
        """Lock a cell and unlock it again, which brings it up to date."""
        row, name = self.some_cell(*self.drafts)
        key = await self.engine.key(self.table, row, name)
        for locked in (True, False):
            await self.engine.edits.lock_cells(self.table, [key], locked=locked, author="test")

    async def redefine(self) -> None:
        name = self.rig.chance.choice(list(self.drafts))
        draft = self.drafts[name]
        head, _, tail = (draft.template or "").partition(" ")
        draft = replace(draft, template=f"{head[0]}{self.rig.chance.randrange(1_000)} {tail}")
        self.drafts[name] = draft
        await self.engine.columns.redefine(self.table, name, draft, author="test")

    async def drop_column(self) -> None:
        """Drop the last column, and add it again, as another one."""
        draft = self.drafts["four"]
        self.forced += len(self.rows)
        await self.engine.columns.drop(self.table, "four", cascade=False, author="test")
        await self.engine.columns.add(self.table, draft, author="test")

    async def delete_row(self) -> None:
        if len(self.rows) > 10:
            row = self.rows.pop(self.rig.chance.randrange(len(self.rows)))
            await self.engine.edits.delete_rows(self.table, [row], author="test")

    async def append_row(self) -> None:
        self.rows.append(await self.engine.add(self.table, word=self.some_word()))

    async def reprocess(self) -> None:
        self.forced += await self.engine.reprocess(self.table)

    def some_word(self) -> str:
        return f"w{self.rig.chance.randrange(1_000_000)}"


def unreliable(worker: CellWorker, rig: Rig, repeated: list[int]) -> CellWorker:
    """The worker, but some of its results come home late, and some twice."""
    finalize = worker._queue.finalize

    async def late_and_twice(*given: Any, **named: Any) -> object:
        if rig.chance.random() < LATE_CHANCE:
            await asyncio.sleep(rig.chance.uniform(0, 0.5))
        verdicts = await finalize(*given, **named)
        if rig.chance.random() < REPEAT_CHANCE:
            await asyncio.sleep(rig.chance.uniform(0, 0.2))
            again = await finalize(*given, **{**named, "spent": ()})
            repeated.append(len(again))
        return verdicts

    worker._queue.finalize = late_and_twice
    return worker


async def run_chaos(engine: Engine, url: str, *, seed: int, words: int, actions: int) -> None:
    async with open_rig(engine, seed) as rig, worker_parts(engine, url) as make_worker:
        table = await rig.make("t", *DRAFTS, words=words)
        crowd = Crowd(
            rig, table, {d.name: d for d in DRAFTS}, [RowId(n) for n in range(1, words + 1)]
        )
        repeated: list[int] = []
        kills = 0
        for _ in range(2):
            rig.start(unreliable(make_worker(lease_seconds=0.5), rig, repeated))
        for number in range(actions):
            await crowd.act()
            if number % 10 == 9:
                kills += 1
                await rig.kill_one()
                rig.start(unreliable(make_worker(lease_seconds=0.5), rig, repeated))
            await rig.tend()
            await rig.sample()
            await asyncio.sleep(rig.chance.uniform(0, 0.05))
        await rig.settle()
        await bring_up_to_date(rig, table)
        await rig.check()
        assert rig.spare_calls() <= crowd.forced + kills * COLLECTION_CAP
        assert repeated, "no result was brought home twice"
        assert sum(repeated) == 0, "a result that was home landed again"
        assert set(await shown_rows(engine, table)) == set(crowd.rows)


async def bring_up_to_date(rig: Rig, table: CollectionId) -> None:
    """Compute what a new definition left, as a person does who has changed one."""
    await rig.engine.dispatcher.dispatch(Request(collection_id=table, only=Only.UNFINISHED))
    await rig.settle()


async def shown_rows(engine: Engine, table: CollectionId) -> list[int]:
    async with engine.pool.connection() as connection:
        cursor = await connection.execute(
            "select distinct row_id from rows where collection_id = %s", [table]
        )
        return [row[0] for row in await cursor.fetchall()]


@pytest.mark.chaos
async def test_changes_and_repeated_results_leave_what_is_newest(
    engine: Engine, database_url: str
) -> None:
    await run_chaos(engine, database_url, seed=1, words=40, actions=40)


@pytest.mark.chaos
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
async def test_a_crowd_that_changes_everything_leaves_what_is_newest(
    engine: Engine, database_url: str, seed: int
) -> None:
    await run_chaos(engine, database_url, seed=400 + seed, words=100, actions=250)
