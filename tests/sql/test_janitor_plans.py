"""The janitor looks for active collections by index, however deep the queue is."""

from __future__ import annotations

import pytest
from filling import fill
from statements import explain, indexes, scanned

from everfill.autofill import janitor
from everfill.infra.postgres import Pool


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize("known", [True, False])
async def test_active_collections_are_stepped_through_by_index(
    pool: Pool, mode: str, *, known: bool
) -> None:
    async with pool.connection() as connection:
        await connection.execute("alter table queue set (autovacuum_enabled = off)")
        await fill(connection, rows=3_300)
        if known:
            await connection.execute("analyze")
        await connection.execute(f"set plan_cache_mode = {mode}".encode())
        plan = await explain(connection, janitor._SQL["active_collections"], {})
    assert "queue" not in scanned(plan)
    assert "queue_pkey" in indexes(plan)
