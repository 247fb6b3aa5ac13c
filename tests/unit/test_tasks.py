from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from everfill.kernel import tasks as module
from everfill.kernel.tasks import end_tasks, one_ahead


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


async def counting(log: list[str], fail_at: int | None = None) -> AsyncIterator[int]:
    for number in range(4):
        if number == fail_at:
            raise ValueError("no more")
        log.append(f"made {number}")
        yield number


async def test_the_next_item_is_made_while_one_is_used_and_no_more() -> None:
    log: list[str] = []
    async for number in one_ahead(counting(log)):
        await asyncio.sleep(0.01)
        log.append(f"used {number}")
    assert log == ["made 0", "made 1", "used 0", "made 2", "used 1", "made 3", "used 2", "used 3"]


async def test_what_came_before_an_error_is_used_first() -> None:
    used: list[int] = []

    async def use() -> None:
        async for number in one_ahead(counting([], fail_at=2)):
            used.append(number)  # noqa: PERF401 - it ends with an error

    with pytest.raises(ValueError, match="no more"):
        await use()
    assert used == [0, 1]


async def test_whoever_leaves_early_leaves_no_task_behind() -> None:
    items = one_ahead(counting([]))
    async for _ in items:
        break
    await items.aclose()
    assert asyncio.all_tasks() == {asyncio.current_task()}
