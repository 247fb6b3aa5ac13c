"""A worker that only knows the queue: claims, reads, dawdles, finalizes, until it is killed."""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections import defaultdict
from collections.abc import Sequence

from everfill.autofill.queue import Capacity, ClaimedCell, Outcome, OutcomeKind, Queue
from everfill.infra.postgres import OUTAGES, Pool, open_pool
from everfill.kernel.ids import CollectionId

ZOMBIE_CHANCE = 0.03
_READ = """
    select w.row_id, w.column_id, coalesce(k.user_value, k.computed_value) #>> '{}'
    from unnest(%s::bigint[], %s::int[]) as w (row_id, column_id)
    join column_references e using (column_id)
    join cells k on k.collection_id = %s and k.row_id = w.row_id and k.column_id = e.upstream_id
"""


async def work(pool: Pool, seed: int, lease_seconds: float) -> None:
    chance = random.Random(seed)
    queue = Queue(pool)
    while True:
        total = chance.randint(1, 25)
        capacity = Capacity(
            cost_class="instant", interactive_max=total, bulk_max=total, total_max=total
        )
        cells = await queue.claim(str(seed), [capacity], lease_seconds=lease_seconds)
        groups: defaultdict[CollectionId, list[ClaimedCell]] = defaultdict(list)
        for cell in cells:
            groups[cell.collection_id].append(cell)
        for collection_id, group in groups.items():
            await fill(pool, queue, chance, collection_id, group, lease_seconds)
        if not cells:
            await asyncio.sleep(0.01)


async def fill(
    pool: Pool,
    queue: Queue,
    chance: random.Random,
    collection_id: CollectionId,
    cells: Sequence[ClaimedCell],
    lease_seconds: float,
) -> None:
    """Compute `input'` for each cell, in two parts, sometimes long after the lease ran out."""
    keys = ([cell.row_id for cell in cells], [cell.column_id for cell in cells], collection_id)
    async with pool.connection() as connection:
        found = await (await connection.execute(_READ.encode(), keys)).fetchall()
    inputs = {(row, column): value for row, column, value in found}
    outcomes = [
        Outcome(
            cell, 1, OutcomeKind.READY, value=json.dumps(f"{inputs[cell.row_id, cell.column_id]}'")
        )
        for cell in cells
        if (cell.row_id, cell.column_id) in inputs
    ]
    chance.shuffle(outcomes)
    half = chance.randint(0, len(outcomes))
    await asyncio.sleep(chance.uniform(0, 0.02))
    await queue.finalize(collection_id, outcomes[:half])
    if chance.random() < ZOMBIE_CHANCE:
        await asyncio.sleep(lease_seconds * chance.uniform(1, 3))
    ended = sorted({cell.claim_id for cell in cells})
    await queue.finalize(collection_id, outcomes[half:], ended=ended)


async def main() -> None:
    url, seed, lease_seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    while True:
        try:
            async with open_pool(url, size_max=2) as pool:
                await work(pool, seed, lease_seconds)
        except OUTAGES as error:
            sys.stderr.write(f"{error}\n")


if __name__ == "__main__":
    asyncio.run(main())
