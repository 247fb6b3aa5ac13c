"""An engine over a test's own database, with a worker that runs inside the test."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from everfill.autofill.cell_worker import CellWorker
from everfill.autofill.columns import ColumnDraft, ColumnKeeper
from everfill.autofill.dispatch import Dispatcher, Only, Request
from everfill.autofill.edits import Edits
from everfill.autofill.progress import read_progress
from everfill.autofill.queue import Queue, Spent
from everfill.compute.protocol import ComputeContext
from everfill.infra.blobs import Blobs
from everfill.infra.postgres import Pool
from everfill.kernel.config import Settings, WorkerSettings
from everfill.kernel.ids import CellKey, CollectionId, ColumnId, RowId
from everfill.tables.cells import Cell, Cells
from everfill.tables.definitions import Definitions
from everfill.tables.schema import Schema
from everfill.tables.values import JsonValue

PLUGINS = Path(__file__).parent / "plugins"
PATIENCE_SECONDS = 60


class Announced:
    """Stands where Temporal is told that there is work."""

    async def announce(self, collection_id: CollectionId) -> None:
        pass

    async def completed(
        self,
        collection_id: CollectionId,
        counts: Mapping[tuple[ColumnId, str], int],
        spent: Sequence[Spent],
    ) -> None:
        pass


@dataclass
class Engine:
    """The services of one installation, and a table to try them on."""

    pool: Pool
    queue: Queue
    blobs: Blobs
    dispatcher: Dispatcher
    edits: Edits
    columns: ColumnKeeper
    settings: Settings
    counted: Path

    async def table(self, name: str, *drafts: ColumnDraft) -> CollectionId:
        async with self.pool.connection() as connection:
            made = await Definitions(connection).create_collection("default", name)
        for draft in drafts:
            await self.columns.add(made.collection_id, draft, author="test")
        return made.collection_id

    async def schema(self, collection_id: CollectionId) -> Schema:
        async with self.pool.connection() as connection:
            return await Definitions(connection).load_schema(collection_id)

    async def add(self, collection_id: CollectionId, **values: JsonValue) -> RowId:
        schema = await self.schema(collection_id)
        row = {schema.ids[name]: value for name, value in values.items()}
        (number,) = await self.edits.append_rows(collection_id, [row], author="test")
        return number

    async def key(self, collection_id: CollectionId, row: RowId, name: str) -> CellKey:
        return CellKey(row, (await self.schema(collection_id)).ids[name])

    async def set(
        self, collection_id: CollectionId, row: RowId, name: str, value: JsonValue
    ) -> int:
        key = await self.key(collection_id, row, name)
        return await self.edits.set_cells(collection_id, {key: value}, author="test")

    async def reset(self, collection_id: CollectionId, row: RowId, name: str) -> int:
        key = await self.key(collection_id, row, name)
        return await self.edits.clear_cells(collection_id, [key], author="test")

    async def cell(self, collection_id: CollectionId, row: RowId, name: str) -> Cell:
        schema = await self.schema(collection_id)
        async with self.pool.connection() as connection:
            page = await Cells(connection, self.blobs).read(schema, [row])
        return page[row].get(schema.ids[name], Cell())

    async def value(self, collection_id: CollectionId, row: RowId, name: str) -> object:
        return (await self.cell(collection_id, row, name)).value

    async def reprocess(
        self, collection_id: CollectionId, *names: str, only: Only | None = None, force: bool = True
    ) -> int:
        schema = await self.schema(collection_id)
        columns = [schema.ids[name] for name in names] or None
        request = Request(collection_id=collection_id, columns=columns, only=only, force=force)
        return (await self.dispatcher.dispatch(request)).cells

    async def counts(self, collection_id: CollectionId) -> dict[str, int]:
        """Computed cells by state, of all columns, without zeros."""
        names = {
            column.column_id: column.name for column in (await self.schema(collection_id)).computed
        }
        progress = await read_progress(self.pool, collection_id, names)
        return {state: count for state, count in progress.total.items() if count}

    def worker(self, **settings: object) -> CellWorker:
        chosen = WorkerSettings.model_validate(
            {"poll_seconds": 0.05, "drain_seconds": 5, **settings}
        )
        return CellWorker(
            pool=self.pool,
            queue=self.queue,
            blobs=self.blobs,
            sink=Announced(),
            context=ComputeContext(settings=self.settings, files=self.blobs),
            settings=chosen,
        )

    async def settle(self, *collections: CollectionId) -> None:
        """Run a worker until the collections are idle."""
        worker = self.worker()
        running = asyncio.create_task(worker.run())
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                for collection_id in collections:
                    while not await self.queue.is_idle(collection_id):
                        await asyncio.sleep(0.01)
        finally:
            worker.stop()
            await running

    def calls(self) -> Counter[str]:
        """How often each text was computed by the counting kinds."""
        if not self.counted.exists():
            return Counter()
        return Counter(self.counted.read_text().splitlines())
