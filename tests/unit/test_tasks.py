from __future__ import annotations

import asyncio

import pytest

from everfill.kernel import tasks as module
from everfill.kernel.tasks import end_tasks


async def test_a_task_that_swallowed_its_cancellation_is_ended_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_AGAIN_SECONDS", 0.01)
    swallowed = 0

    async def stubborn() -> None:
        nonlocal swallowed
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            swallowed += 1
        await asyncio.Event().wait()

    async def failing() -> None:
        raise ValueError

    tasks = [asyncio.create_task(stubborn()), asyncio.create_task(failing())]
    await asyncio.sleep(0)
    await end_tasks(tasks)

    assert swallowed == 1
    assert all(task.done() for task in tasks)


async def test_who_is_cancelled_while_it_ends_others_leaves_none_of_them_alive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_AGAIN_SECONDS", 0.01)
    cancelled = asyncio.Event()

    async def slow_to_end() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(slow_to_end())
    await asyncio.sleep(0)
    ending = asyncio.create_task(end_tasks([task]))
    await cancelled.wait()
    ending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ending
    assert task.done()
