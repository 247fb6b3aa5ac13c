"""A queue to work on."""

from __future__ import annotations

import pytest
from queue_bench import Bench

from everfill.autofill.queue import Queue
from everfill.infra.postgres import Pool


@pytest.fixture
def bench(pool: Pool, queue: Queue) -> Bench:
    """A queue to work on."""
    return Bench(pool, queue)
