"""Small tables on a real queue, made in a few statements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from obstore.store import MemoryStore

from everfill.autofill.dispatch import Dispatcher, Lane, Request
from everfill.autofill.edits import Edits
from everfill.autofill.queue import Capacity, ClaimedCell, ColumnSignal, Outcome, OutcomeKind, Queue
from everfill.infra.blobs import Blobs
from everfill.infra.postgres import Pool
from everfill.kernel.ids import CellKey, ClaimId, CollectionId, ColumnId, RowId, RunId
from everfill.tables.cells import Cells, NewRow
from everfill.tables.definitions import Definitions
from everfill.tables.schema import Computation
from everfill.tables.types import TEXT


class Silent:
    """Nobody needs to be told here."""

    async def announce(self, collection_id: CollectionId) -> None:
        del collection_id


@dataclass(frozen=True)
class Table:
    """A collection with an input column x and computed ones."""

    collection_id: CollectionId
    columns: Sequence[ColumnId]
    rows: Sequence[RowId]


@dataclass
class Bench:
    """The queue with what makes and moves work."""

    pool: Pool
    queue: Queue
    blobs: Blobs = field(default_factory=lambda: Blobs(MemoryStore()))

    def __post_init__(self) -> None:
        self.dispatcher = Dispatcher(self.pool, self.queue, self.blobs, Silent())
        self.edits = Edits(self.pool, self.queue, self.blobs, self.dispatcher)

    async def make(
        self,
        name: str,
        *,
        rows: int,
        namespace: str = "default",
        cap: int = 1_000_000,
        templates: Sequence[str] = ("{{x}}",),
    ) -> Table:
        """A table with nothing queued; the computed columns are called c0, c1, ..."""
        async with self.pool.connection() as connection, connection.transaction():
            definitions = Definitions(connection)
            await definitions.ensure_namespace(namespace, cap_cells=1_000_000)
            made = await definitions.create_collection(namespace, name, cap_cells=cap)
            key = made.collection_id
            columns = [await definitions.add_column(await definitions.lock_schema(key), "x", TEXT)]
            for place, template in enumerate(templates):
                schema = await definitions.lock_schema(key)
                given = Computation(kind="template", template=template, cost_class="instant")
                columns.append(await definitions.add_column(schema, f"c{place}", TEXT, given))
            fresh = [NewRow(None, {columns[0]: f"{n}"}) for n in range(rows)]
            numbers = await Cells(connection, self.blobs).append(key, fresh) if rows else []
        return Table(key, columns[1:], [RowId(n) for n in numbers])

    async def signal(self, table: Table, rows: Sequence[RowId] | None = None) -> int:
        """Signal all computed cells of rows interactively, in a transaction of its own."""
        async with self.pool.connection() as connection, connection.transaction():
            await self.queue.lock(connection, table.collection_id)
            return await self.queue.signal(
                connection,
                table.collection_id,
                table.rows if rows is None else rows,
                signals(table),
            )

    async def bulk(self, table: Table, *, weight: float = 1.0, force: bool = True) -> RunId:
        """Dispatch everything as one bulk run."""
        request = Request(
            collection_id=table.collection_id, lane=Lane.BULK, force=force, weight=weight
        )
        done = await self.dispatcher.dispatch(request)
        assert done.run_id is not None
        return done.run_id

    async def claim(
        self, total: int, *, interactive: int | None = None, bulk: int | None = None
    ) -> list[ClaimedCell]:
        """Claim instant cells."""
        capacity = Capacity(
            cost_class="instant",
            interactive_max=total if interactive is None else interactive,
            bulk_max=total if bulk is None else bulk,
            total_max=total,
        )
        return await self.queue.claim("worker", [capacity], lease_seconds=60)

    async def land(
        self, cells: Sequence[ClaimedCell], *, kind: OutcomeKind = OutcomeKind.READY
    ) -> dict[CellKey, str]:
        """Bring cells home, as the last of their claims."""
        verdicts: dict[CellKey, str] = {}
        for key in sorted({cell.collection_id for cell in cells}):
            own = [cell for cell in cells if cell.collection_id == key]
            outcomes = [Outcome(cell, 1, kind, value='"v"') for cell in own]
            ended = sorted({ClaimId(cell.claim_id) for cell in own})
            verdicts |= await self.queue.finalize(key, outcomes, ended=ended)
        return verdicts

    async def scalar(self, statement: str, *params: object) -> int:
        """One number."""
        async with self.pool.connection() as connection:
            cursor = await connection.execute(statement.encode(), params or None)
            row = await cursor.fetchone()
        assert row
        return row[0]


def signals(table: Table) -> list[ColumnSignal]:
    """All computed columns, explicit."""
    return [
        ColumnSignal(column_id=column, cost_class="instant", explicit=True)
        for column in table.columns
    ]
