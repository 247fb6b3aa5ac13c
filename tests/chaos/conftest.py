"""The engine that the faults of this folder are done to."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from obstore.store import MemoryStore

from everfill.autofill.columns import ColumnKeeper
from everfill.autofill.dispatch import Dispatcher
from everfill.autofill.edits import Edits
from everfill.autofill.queue import Queue
from everfill.compute import registry
from everfill.infra.blobs import Blobs
from everfill.infra.postgres import Pool
from everfill.kernel.config import Settings
from integration.engine import PLUGINS, Announced, Engine


@pytest.fixture
def counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file that the counting kinds write to, and those kinds installed."""
    path = tmp_path / "counted"
    monkeypatch.setenv("COUNTED_CALLS_FILE", str(path))
    monkeypatch.syspath_prepend(str(PLUGINS))
    registry.get_kind.cache_clear()
    registry._third_party.cache_clear()
    yield path
    registry.get_kind.cache_clear()
    registry._third_party.cache_clear()
    sys.modules.pop("everfill_test_kinds", None)


@pytest.fixture
def engine(pool: Pool, queue: Queue, counted: Path, tmp_path: Path) -> Engine:
    """Everfill over the test's database, whose workers the test makes."""
    blobs = Blobs(MemoryStore())
    dispatcher = Dispatcher(pool, queue, blobs, Announced())
    return Engine(
        pool=pool,
        queue=queue,
        blobs=blobs,
        dispatcher=dispatcher,
        edits=Edits(pool, queue, blobs, dispatcher),
        columns=ColumnKeeper(pool, queue),
        settings=Settings(data_dir=tmp_path),
        counted=counted,
    )
