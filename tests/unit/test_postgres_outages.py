from __future__ import annotations

import asyncio

import psycopg
import pytest

from everfill.infra.postgres import persist
from everfill.kernel.errors import UnavailableError


async def test_a_full_disk_is_told_at_once_and_as_such() -> None:
    calls = 0

    async def call() -> None:
        nonlocal calls
        calls += 1
        raise psycopg.errors.DiskFull("could not extend file: No space left on device")

    with pytest.raises(UnavailableError, match="No space left on device") as caught:
        await persist(call)
    assert caught.value.code == "disk_full"
    assert calls == 1


async def test_a_call_that_turns_its_cancellation_into_an_outage_is_not_made_again() -> None:
    calls = 0
    asked = asyncio.Event()

    async def call() -> None:
        nonlocal calls
        calls += 1
        asked.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise psycopg.OperationalError("the pipeline is closed") from None

    task = asyncio.create_task(persist(call))
    await asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert calls == 1
