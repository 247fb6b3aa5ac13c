"""The mixed work: re-imports, reprocesses, model calls, new and deleted rows and collections."""

from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass, field
from typing import Final

from everfill.app import App
from everfill.autofill.columns import ColumnDraft
from everfill.autofill.dispatch import Lane, Request
from everfill.autofill.edits import SourceValues
from everfill.bench.soak.plan import Plan
from everfill.kernel.ids import CollectionId, ColumnId, RowId
from everfill.tables.definitions import Definitions

__all__ = ["Load", "Table"]

_IMPORT_ROWS: Final = 5_000
_PIECE_ROWS: Final = 500
_MODEL_ROWS: Final = 500
_MODEL_PIECE_ROWS: Final = 20
_VISITOR_ROWS: Final = 500
_TURNOVER_ROWS: Final = 20
_TURNOVER_EVERY: Final = 10  # pieces
_VISITOR_EVERY: Final = 50
_AUTHOR: Final = "bench"
_TEMPLATES: Final = (
    ColumnDraft(name="one", kind="template", template="1 {{word}}"),
    ColumnDraft(name="two", kind="template", template="2 {{one}}"),
)
_MODEL: Final = (ColumnDraft(name="one", kind="ai", template="{{word}}"),)


@dataclass(slots=True)
class Table:
    """A collection that the load works on; its row numbers grow, its number of rows does not."""

    collection_id: CollectionId
    ids: dict[str, ColumnId]
    rows: int
    first: int = 1
    turn: int = 0

    def next_rows(self, count: int) -> range:
        """The next rows in turn, from the first again after the last."""
        at = self.first + self.turn % self.rows
        found = range(at, min(at + count, self.first + self.rows))
        self.turn = (self.turn + len(found)) % self.rows
        return found


@dataclass(slots=True)
class Load:
    """Pieces of work, each asked for as soon as the one before is recorded."""

    app: App
    plan: Plan
    tables: list[Table] = field(default_factory=list[Table])
    _visitors: list[CollectionId] = field(default_factory=list[CollectionId])
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    async def prepare(self) -> None:
        """Import what is worked on; the last table is the one of model calls."""
        for number in range(self.plan.tables):
            table = await self._make(f"templates-{number}", _TEMPLATES, self.plan.rows)
            self.tables.append(table)
        self.tables.append(await self._make("model", _MODEL, _MODEL_ROWS))

    async def pieces(self) -> AsyncGenerator[int, None]:
        """Ask for work without end; yields the cells that each piece will have computed."""
        *templates, model = self.tables
        for number in itertools.count():
            table = templates[number // 2 % len(templates)]
            yield await (self._import_again(table) if number % 2 else self._reprocess(table))
            yield await self._ask_model(model)
            if number % _TURNOVER_EVERY == 0:
                yield await self._turn_over(table)
            if number % _VISITOR_EVERY == 0:
                yield await self._visit(number)

    async def _make(self, name: str, drafts: tuple[ColumnDraft, ...], rows: int) -> Table:
        async with self.app.pool.connection() as connection:
            made = await Definitions(connection).create_collection("default", name)
        key = made.collection_id
        ids = {
            draft.name: await self.app.columns.add(key, draft, author=_AUTHOR)
            for draft in (ColumnDraft(name="word"), *drafts)
        }
        for start in range(1, rows + 1, _IMPORT_ROWS):
            numbers = range(start, min(rows + 1, start + _IMPORT_ROWS))
            batch = [SourceValues(str(n), {ids["word"]: f"w{n}"}) for n in numbers]
            await self.app.edits.take_rows(key, batch, update=False)
        return Table(key, ids, rows)

    async def _reprocess(self, table: Table) -> int:
        """Ask for a slice once more, whatever its values."""
        return await self._dispatch(table, table.next_rows(_PIECE_ROWS), "reprocess")

    async def _import_again(self, table: Table) -> int:
        """Take a slice from its source with other words."""
        word, number = table.ids["word"], next(self._numbers)
        rows = table.next_rows(_PIECE_ROWS)
        batch = [SourceValues(str(n), {word: f"w{n} {number}"}) for n in rows]
        _, changed = await self.app.edits.take_rows(table.collection_id, batch, update=True)
        await self.app.dispatcher.announce(table.collection_id)
        return changed * len(_TEMPLATES)

    async def _ask_model(self, model: Table) -> int:
        return await self._dispatch(model, model.next_rows(_MODEL_PIECE_ROWS), "reprocess")

    async def _dispatch(self, table: Table, rows: range, reason: str) -> int:
        request = Request(
            collection_id=table.collection_id,
            rows=[RowId(n) for n in rows],
            force=True,
            lane=Lane.BULK,
            author=_AUTHOR,
            reason=reason,
        )
        return (await self.app.dispatcher.dispatch(request)).cells

    async def _turn_over(self, table: Table) -> int:
        """New rows come from the source, as many old ones go, computed or not."""
        word, number = table.ids["word"], next(self._numbers)
        old = range(table.first, table.first + _TURNOVER_ROWS)
        fresh = range(old.start + table.rows, old.stop + table.rows)
        batch = [SourceValues(str(n), {word: f"new {number} {n}"}) for n in fresh]
        await self.app.edits.take_rows(table.collection_id, batch, update=False)
        cells = await self._dispatch(table, fresh, "import")
        await self.app.edits.delete_rows(
            table.collection_id, [RowId(n) for n in old], author=_AUTHOR
        )
        table.first += _TURNOVER_ROWS
        return cells

    async def _visit(self, number: int) -> int:
        """A collection comes, is filled and appended to; the one before goes, done or not."""
        table = await self._make(f"visitor-{number}", _TEMPLATES, _VISITOR_ROWS)
        self._visitors.append(table.collection_id)
        cells = await self._dispatch(table, range(1, _VISITOR_ROWS + 1), "import")
        word = table.ids["word"]
        fresh = [{word: f"appended {n}"} for n in range(_TURNOVER_ROWS)]
        await self.app.edits.append_rows(table.collection_id, fresh, author=_AUTHOR)
        if len(self._visitors) > 1:
            await self._delete(self._visitors.pop(0))
        return cells + _TURNOVER_ROWS * len(_TEMPLATES)

    async def _delete(self, collection_id: CollectionId) -> None:
        async with self.app.pool.connection() as connection, connection.transaction():
            await self.app.queue.lock(connection, collection_id)
            await Definitions(connection).delete_collection(collection_id)
