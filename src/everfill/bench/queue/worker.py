"""A worker that only knows the queue: claim, make up an answer, finalize, until enough is home.

`python -m everfill.bench.queue.worker URL CELLS BATCH PAYLOAD_BYTES` takes a few cells one by one
to warm up, says `ready`, waits for a line on its standard input, so that all workers begin at the
same moment, and prints one JSON object at its end.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections import Counter, defaultdict
from dataclasses import asdict
from typing import Final

from everfill.autofill.queue import Capacity, ClaimedCell, Outcome, OutcomeKind, Queue
from everfill.bench.queue.tally import Tally
from everfill.infra.postgres import open_pool
from everfill.kernel.ids import CollectionId

__all__ = ["main"]

_IDLE_SECONDS: Final = 0.002
_IDLE_CLAIMS_MAX: Final = 100
_LEASE_SECONDS: Final = 60.0
_WARM_UPS: Final = 6  # the server settles on a plan after five
_HASH: Final = b"0123456789abcdef"


class _Worker:
    def __init__(self, queue: Queue, batch: int, payload_bytes: int) -> None:
        self._queue = queue
        self._name = f"bench-{os.getpid()}"
        self._value = json.dumps("x" * payload_bytes)
        self._batch = batch
        self.tally = Tally()

    async def warm_up(self) -> None:
        """Let the server plan the statements; what that took is not counted."""
        for _ in range(_WARM_UPS):
            for collection_id, own in (await self._claim(1)).items():
                self.tally.warm_up_cells += await self._finalize(collection_id, own)
        self.tally = Tally(warm_up_cells=self.tally.warm_up_cells)

    async def work(self, cells: int) -> None:
        """Claim and finalize until that many cells are home, or nothing comes any more."""
        served: Counter[int] = Counter()
        cpu_seconds, idle = time.process_time(), 0
        self.tally.began_at = time.monotonic()
        while self.tally.cells < cells and idle < _IDLE_CLAIMS_MAX:
            claimed = await self._claim(self._batch)
            idle = 0 if claimed else idle + 1
            for collection_id, own in claimed.items():
                landed = await self._finalize(collection_id, own)
                served[collection_id] += landed
                self.tally.cells += landed
                self.tally.ended_at = time.monotonic()
            if not claimed:
                await asyncio.sleep(_IDLE_SECONDS)
        self.tally.cpu_seconds = time.process_time() - cpu_seconds
        self.tally.served = dict(served)

    async def _claim(self, n: int) -> dict[CollectionId, list[ClaimedCell]]:
        capacity = Capacity(cost_class="instant", interactive_max=n, bulk_max=n, total_max=n)
        started = time.perf_counter()
        cells = await self._queue.claim(self._name, [capacity], lease_seconds=_LEASE_SECONDS)
        if cells:
            self.tally.claims.append(time.perf_counter() - started)
        groups: defaultdict[CollectionId, list[ClaimedCell]] = defaultdict(list)
        for cell in cells:
            groups[cell.collection_id].append(cell)
        return groups

    async def _finalize(self, collection_id: CollectionId, cells: list[ClaimedCell]) -> int:
        outcomes = [
            Outcome(cell, 1, OutcomeKind.READY, value=self._value, input_hash=_HASH)
            for cell in cells
        ]
        started = time.perf_counter()
        verdicts = await self._queue.finalize(
            collection_id, outcomes, ended=list({cell.claim_id for cell in cells})
        )
        self.tally.finalizes.append(time.perf_counter() - started)
        return len(verdicts)


async def main() -> None:
    """Work as the command line says."""
    url, cells, batch, payload_bytes = sys.argv[1], *map(int, sys.argv[2:5])
    async with open_pool(url, size_max=2) as pool:
        worker = _Worker(Queue(pool), batch, payload_bytes)
        await worker.warm_up()
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.readline)
        await worker.work(cells)
    sys.stdout.write(json.dumps(asdict(worker.tally)) + "\n")


if __name__ == "__main__":
    asyncio.run(main())
