"""A table of words and two chained templates, made and recomputed by hand."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Final

from everfill.app import App
from everfill.autofill.columns import ColumnDraft
from everfill.autofill.edits import SourceValues
from everfill.kernel import limits
from everfill.kernel.errors import UnavailableError
from everfill.kernel.ids import CollectionId
from everfill.tables.definitions import Definitions

__all__ = ["TABLE", "make_words", "recompute_by_command"]

TABLE: Final = "words"


async def make_words(
    app: App, rows: int, timed: Callable[[], AbstractContextManager[None]] = nullcontext
) -> CollectionId:
    """Import one word a row, and add two columns computed from it; nothing is dispatched.

    Args:
        app: Where.
        rows: How many.
        timed: Entered around the import of every batch.
    """
    async with app.pool.connection() as connection:
        made = await Definitions(connection).create_collection("default", TABLE)
    key = made.collection_id
    word = await app.columns.add(key, ColumnDraft(name="word"), author="bench")
    for start in range(0, rows, limits.IMPORT_CHUNK_ROWS):
        numbers = range(start, min(rows, start + limits.IMPORT_CHUNK_ROWS))
        batch = [SourceValues(str(n), {word: f"w{n}"}) for n in numbers]
        with timed():
            await app.edits.take_rows(key, batch, update=False)
    for name, template in (("one", "1 {{word}}"), ("two", "2 {{one}}")):
        draft = ColumnDraft(name=name, kind="template", template=template)
        await app.columns.add(key, draft, author="bench")
    return key


async def recompute_by_command(app: App) -> float:
    """Seconds that `everfill reprocess` takes for the table: every cell goes by the queue.

    Raises:
        UnavailableError: It failed.
    """
    started = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "everfill", "reprocess", TABLE, "--yes", "--wait"),
        *("--data-dir", str(app.settings.data_dir)),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    if code := await process.wait():
        raise UnavailableError("bench_reprocess_failed", f"It ended with exit code {code}.")
    return time.perf_counter() - started
