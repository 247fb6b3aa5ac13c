"""Interleavings that chance seldom finds, on both sides."""

from __future__ import annotations

import pytest
from world import World

from everfill.autofill.machine import State
from everfill.autofill.queue import Capacity, Outcome, OutcomeKind
from everfill.infra.postgres import Pool
from everfill.kernel import limits
from everfill.kernel.ids import CellKey
from everfill.tables.cells import Cells, CellStatus


@pytest.fixture
async def world(pool: Pool) -> World:
    made = World(pool)
    await made.create({"x": None, "a": ("instant", "a({{x}})")}, rows=1)
    await made.learn_readers()
    return made


async def round_trip(world: World, value: str | None, kind: OutcomeKind) -> None:
    """A call during which the input changes."""
    await world.claim("one", interactive=9, bulk=9, total=9)
    await world.read(world.held)
    await world.set_input(world.rows[0], "x", value)
    await world.finalize(world.held[:], [kind])
    await world.check()


@pytest.mark.parametrize("kind", [OutcomeKind.READY, OutcomeKind.NOT_FOUND])
async def test_a_burst_ends_as_outdated_after_three_calls(world: World, kind: OutcomeKind) -> None:
    key = CellKey(world.rows[0], world.ids["a"])
    for number in range(limits.DIRTY_ROUNDS_MAX):
        assert world.model.cells[key].state is State.QUEUED
        await round_trip(world, f"new {number}", kind)
    assert world.model.cells[key].state is State.DONE
    assert world.model.cells[key].outdated


async def test_rounds_that_found_no_input_do_not_end_a_burst(world: World) -> None:
    row, key = world.rows[0], CellKey(world.rows[0], world.ids["a"])
    await world.set_input(row, "x", None)
    for number in range(limits.DIRTY_ROUNDS_MAX + 1):
        await round_trip(world, f"new {number}", OutcomeKind.READY)
        assert world.model.cells[key].state is State.QUEUED
        assert world.model.cells[key].rounds == 0
        await world.set_input(row, "x", None)
    await world.set_input(row, "x", "last")
    await world.settle()
    await world.check_converged()
    assert world.model.cells[key].state is State.DONE
    assert not world.model.cells[key].outdated


async def test_the_last_lost_worker_fails_its_cell(world: World) -> None:
    key = CellKey(world.rows[0], world.ids["a"])
    for _ in range(limits.LOST_TRIES_MAX):
        await world.claim("one", interactive=9, bulk=9, total=9)
        world.pass_time(100)
        await world.reclaim()
        await world.check()
    assert world.model.cells[key].state is State.ERROR


async def test_the_last_transient_failure_is_for_good(world: World) -> None:
    key = CellKey(world.rows[0], world.ids["a"])
    for _ in range(limits.TRIES_MAX):
        await world.claim("one", interactive=9, bulk=9, total=9)
        await world.read(world.held)
        await world.finalize(world.held[:], [OutcomeKind.RETRY], delay_seconds=5)
        await world.check()
        world.pass_time(5)
        await world.retry_due()
        await world.check()
    assert world.model.cells[key].state is State.ERROR


@pytest.mark.parametrize("change", ["lock", "override"])
async def test_a_hidden_call_does_not_wait_for_what_left_the_queue(pool: Pool, change: str) -> None:
    """A pinned cell is not signalled, so nothing but a release gives it its place."""
    world = World(pool)
    columns = {"x": None, "a": ("remote", "a({{x}})"), "b": ("remote", "b({{a}})")}
    await world.create(columns, rows=1)
    await world.learn_readers()
    await world.settle()
    row = world.rows[0]
    await world.dispatch(["b"], [row], force=True, only=None, lane=None)
    await world.claim("one", interactive=9, bulk=9, total=9)
    await world.read(world.held)
    await world.set_input(row, "x", "new")
    await world.override(row, "b", "typed")
    await world.finalize(world.held[:], [OutcomeKind.READY])
    assert world.model.cells[CellKey(row, world.ids["b"])].state is State.BLOCKED
    if change == "lock":
        await world.lock(row, "a", locked=True)
    else:
        await world.override(row, "a", "typed")
    await world.check()
    assert world.model.cells[CellKey(row, world.ids["b"])].state is State.QUEUED


async def finish(world: World) -> None:
    """Whatever is queued turns out to be the same as before."""
    room = Capacity(cost_class="remote", interactive_max=9, bulk_max=9, total_max=9)
    while cells := await world.queue.claim("one", [room], lease_seconds=60):
        outcomes = [Outcome(cell, 1, OutcomeKind.UNCHANGED) for cell in cells]
        ended = [cell.claim_id for cell in cells]
        await world.queue.finalize(world.collection_id, outcomes, ended=ended)


@pytest.mark.parametrize("change", ["unlock", "reset"])
@pytest.mark.parametrize("names", [("b", "a"), ("c", "a"), ("a", "c")])
async def test_cells_of_one_edit_wait_for_each_other_and_for_what_lies_between(
    pool: Pool, change: str, names: tuple[str, str]
) -> None:
    world = World(pool)
    columns = {"x": None, "a": ("remote", "a({{x}})"), "b": ("remote", "b({{a}})")}
    await world.create({**columns, "c": ("remote", "c({{b}})")}, rows=1)
    await world.learn_readers()
    await world.settle()
    row = world.rows[0]
    keys = [CellKey(row, world.ids[name]) for name in names]
    if change == "unlock":
        await world.edits.lock_cells(world.collection_id, keys, locked=True, author="test")
        await finish(world)
        await world.edits.lock_cells(world.collection_id, keys, locked=False, author="test")
    else:
        values = dict.fromkeys(keys, "typed")
        await world.edits.set_cells(world.collection_id, values, author="test")
        await finish(world)
        await world.edits.clear_cells(world.collection_id, keys, author="test")
    async with pool.connection() as connection:
        cells = await Cells(connection, world.blobs).read(await world.schema(), [row])
    found = {name: cells[row][world.ids[name]].status for name in "abc"}
    waiting = CellStatus.WAITING
    assert found == {"a": CellStatus.QUEUED, "b": waiting, "c": waiting}
