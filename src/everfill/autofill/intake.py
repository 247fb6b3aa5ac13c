"""Intake: a source of rows becomes rows of a collection, streamed, and resumed where it stopped.

What was imported is noted in the collection. An unchanged and finished source is not read again; an
unfinished one goes on where it was; a changed one updates its rows by their keys, and only what
depends on a change is computed again.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from everfill.autofill.columns import ColumnKeeper
from everfill.autofill.edits import Edits, SourceValues
from everfill.infra.postgres import Pool, persist
from everfill.kernel import limits
from everfill.kernel.errors import ConflictError
from everfill.kernel.ids import ColumnId
from everfill.kernel.tasks import one_ahead
from everfill.tables.definitions import Definitions
from everfill.tables.imports import Source
from everfill.tables.schema import Collection
from everfill.tables.values import JsonValue

__all__ = ["Intake", "Taken", "fingerprint"]

_HASHED_BYTES: Final = 1 << 20  # of a file's head and tail; with size and time this tells a change


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What an import did: rows read, rows appended, cells changed in known rows."""

    read: int = 0
    appended: int = 0
    changed: int = 0
    skipped: bool = False
    """The source was imported before and has not changed; it was not read."""


class Intake:
    """Imports sources.

    Args:
        pool: Connections to Postgres.
        edits: Takes the rows.
        columns: Makes the input columns.
    """

    def __init__(self, pool: Pool, edits: Edits, columns: ColumnKeeper) -> None:
        self._pool = pool
        self._edits = edits
        self._columns = columns

    async def ensure_collection(self, namespace: str, name: str, *, cap_cells: int) -> Collection:
        """The collection of a name, made where it is missing."""
        async with self._pool.connection() as connection:
            definitions = Definitions(connection)
            if found := await definitions.find_collection(namespace, name):
                return found
            try:
                return await definitions.create_collection(namespace, name, cap_cells=cap_cells)
            except ConflictError:  # another made it in this instant
                return await definitions.get_collection(namespace, name)

    async def take(
        self,
        collection: Collection,
        path: Path,
        source: Source,
        *,
        author: str,
        on_rows: Callable[[int], None],
        sheet: str | None = None,
    ) -> Taken:
        """Import a source into a collection.

        Args:
            collection: Where to.
            path: Of the source; tells whether it changed.
            source: Opened, not yet read.
            author: On whose behalf.
            on_rows: Called with the number of rows read so far.
            sheet: Which part of the path the source is, where it has parts.
        """
        print_ = await asyncio.to_thread(fingerprint, path)
        before = collection.source or {}
        known = before.get("fingerprint") == print_ and before.get("sheet") == sheet
        if known and before.get("finished"):
            return Taken(skipped=True)
        ids = await self._ensure_columns(collection, source, author)
        noted: dict[str, JsonValue] = {"path": str(path), "sheet": sheet, "fingerprint": print_}
        # An update that was cut off left rows of both; only another one sets them right.
        update = bool(before) and (not known or bool(before.get("updating")))
        await self._note(collection, noted | {"finished": False, "updating": update})
        taken = await self._take_batches(collection, source, ids, update=update, on_rows=on_rows)
        await self._note(collection, noted | {"finished": True})
        return taken

    async def _take_batches(
        self,
        collection: Collection,
        source: Source,
        ids: list[ColumnId],
        *,
        update: bool,
        on_rows: Callable[[int], None],
    ) -> Taken:
        read = appended = changed = 0
        async with aclosing(one_ahead(source.batches(limits.IMPORT_CHUNK_ROWS))) as batches:
            async for batch in batches:
                rows = [SourceValues(r.key, dict(zip(ids, r.values, strict=True))) for r in batch]
                take = partial(self._edits.take_rows, collection.collection_id, rows, update=update)
                new, cells = await persist(take)
                read, appended, changed = read + len(rows), appended + new, changed + cells
                on_rows(read)
        return Taken(read=read, appended=appended, changed=changed)

    async def _ensure_columns(
        self, collection: Collection, source: Source, author: str
    ) -> list[ColumnId]:
        """The input columns of a source, made where they are missing.

        A column keeps the type that it has: a value of another kind is kept as it is.
        """
        types = {column.name: column.type for column in source.columns}
        ids = await self._columns.add_inputs(collection.collection_id, types, author=author)
        return [ids[column.name] for column in source.columns]

    async def _note(self, collection: Collection, source: Mapping[str, JsonValue]) -> None:
        async with self._pool.connection() as connection:
            await Definitions(connection).update_collection(collection.collection_id, source=source)


def fingerprint(path: Path) -> str:
    """What tells whether a file, or a folder of files, is the one that was imported before."""
    digest = hashlib.sha256()
    files = [path] if path.is_file() else sorted(item for item in path.rglob("*") if item.is_file())
    for file in files:
        status = file.stat()
        digest.update(f"{file.relative_to(path)}\0{status.st_size}\0".encode())
        with file.open("rb") as content:
            digest.update(content.read(_HASHED_BYTES))
            if status.st_size > _HASHED_BYTES:
                digest.update(f"\0{status.st_mtime_ns}\0".encode())
                content.seek(max(_HASHED_BYTES, status.st_size - _HASHED_BYTES))
                digest.update(content.read(_HASHED_BYTES))
    return digest.hexdigest()
