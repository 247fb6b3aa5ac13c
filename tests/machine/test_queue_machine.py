"""The queue in SQL and the pure machine agree under any interleaving, and converge."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, ClassVar, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from world import LEASE_SECONDS, World

from everfill.autofill.dispatch import Lane, Only
from everfill.autofill.queue import OutcomeKind
from everfill.infra.postgres import Pool, open_pool

COLUMNS = {
    "x": None,
    "y": None,
    "a": ("instant", "a({{x}})"),
    "b": ("remote", "b({{a}})"),
    "c": ("local", "c({{a}},{{y}})"),
    "d": ("instant", "d({{b}},{{c}})"),
    "e": ("remote", "e({{d}})"),
}
TEMPLATES = {
    "a": ["a({{x}})", "A({{x}})"],
    "b": ["b({{a}})", "B({{a}},{{c}})", "b({{y}})"],
    "c": ["c({{a}},{{y}})", "C({{y}})"],
    "d": ["d({{b}},{{c}})", "D({{c}})"],
}
COMPUTED = ["a", "b", "c", "d", "e"]
WISHES = [
    *[OutcomeKind.READY] * 4,
    OutcomeKind.NOT_FOUND,
    OutcomeKind.FAILED,
    OutcomeKind.RETRY,
]
ROWS = 2
T = TypeVar("T")


class QueueMachine(RuleBasedStateMachine):
    runner: ClassVar[asyncio.Runner]
    pool: ClassVar[Pool]

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    @initialize()
    def create(self) -> None:
        self.world = World(self.pool)
        self.run(self.world.create(COLUMNS, rows=ROWS))
        self.run(self.world.learn_readers())

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        try:
            self.run(self.world.check())
            self.run(self.world.settle())
            self.run(self.world.check())
            self.run(self.world.check_converged())
        finally:
            self.run(self.world.destroy())

    @invariant()
    def agree(self) -> None:
        if hasattr(self, "world"):
            self.run(self.world.check())

    def _row(self, data: st.DataObject) -> int:
        return data.draw(st.sampled_from(self.world.rows), label="row")

    def _column(self, data: st.DataObject) -> str:
        alive = [name for name in COMPUTED if name in self.world.ids]
        return data.draw(st.sampled_from(alive), label="column")

    # -- people and agents --------------------------------------------------------------------

    @precondition(lambda self: self.world.rows)
    @rule(data=st.data(), column=st.sampled_from("xy"), value=st.sampled_from(["1", "2", None]))
    def edit(self, data: st.DataObject, column: str, value: str | None) -> None:
        self.run(self.world.set_input(self._row(data), column, value))

    @precondition(lambda self: self.world.rows)
    @rule(data=st.data(), value=st.sampled_from(["p", "q"]))
    def override(self, data: st.DataObject, value: str) -> None:
        self.run(self.world.override(self._row(data), self._column(data), value))

    @precondition(lambda self: any(cell.overridden for cell in self.world.model.cells.values()))
    @rule(data=st.data())
    def reset(self, data: st.DataObject) -> None:
        self.run(self.world.reset(self._row(data), self._column(data)))

    @precondition(lambda self: self.world.rows)
    @rule(data=st.data(), locked=st.booleans())
    def lock(self, data: st.DataObject, locked: bool) -> None:
        self.run(self.world.lock(self._row(data), self._column(data), locked=locked))

    @precondition(lambda self: self.world.rows)
    @rule(
        data=st.data(),
        whole=st.booleans(),
        force=st.booleans(),
        only=st.sampled_from([None, None, *Only]),
        lane=st.sampled_from([None, *Lane]),
    )
    def dispatch(
        self, data: st.DataObject, whole: bool, force: bool, only: Only | None, lane: Lane | None
    ) -> None:
        alive = [name for name in COMPUTED if name in self.world.ids]
        names = data.draw(st.sets(st.sampled_from(alive), min_size=1), label="columns")
        rows = None if whole else [self._row(data)]
        self.run(self.world.dispatch(sorted(names), rows, force=force, only=only, lane=lane))

    @rule(data=st.data())
    def redefine(self, data: st.DataObject) -> None:
        alive = [name for name in TEMPLATES if name in self.world.ids]
        column = data.draw(st.sampled_from(alive), label="column")
        fits = [
            text
            for text in TEMPLATES[column]
            if all(name in self.world.ids for name in "abcxy" if f"{{{{{name}}}}}" in text)
        ]
        if fits:
            self.run(self.world.redefine(column, data.draw(st.sampled_from(fits))))

    @precondition(lambda self: len(self.world.rows) > 1)
    @rule(data=st.data())
    def delete_row(self, data: st.DataObject) -> None:
        self.run(self.world.delete_row(self._row(data)))

    @precondition(lambda self: len(self.world.rows) < ROWS)
    @rule()
    def append_row(self) -> None:
        self.run(self.world.append(1))

    @precondition(lambda self: "e" in self.world.ids)
    @rule(column=st.sampled_from(["d", "e"]), surely=st.integers(0, 3))
    def drop_column(self, column: str, surely: int) -> None:
        if surely == 0 and column in self.world.ids:
            self.run(self.world.drop_column(column))

    # -- workers ------------------------------------------------------------------------------

    @rule(
        worker=st.sampled_from(["one", "two"]),
        interactive=st.integers(0, 4),
        bulk=st.integers(0, 4),
        total=st.integers(1, 6),
    )
    def claim(self, worker: str, interactive: int, bulk: int, total: int) -> None:
        self.run(self.world.claim(worker, interactive=interactive, bulk=bulk, total=total))

    @rule()
    def claim_much(self) -> None:
        self.run(self.world.claim("three", interactive=9, bulk=9, total=9))

    @precondition(lambda self: any(item.decision is None for item in self.world.held))
    @rule(data=st.data())
    def read(self, data: st.DataObject) -> None:
        unread = [item for item in self.world.held if item.decision is None]
        count = data.draw(st.integers(1, len(unread)), label="count")
        self.run(self.world.read(unread[:count]))

    @precondition(lambda self: any(item.decision for item in self.world.held))
    @rule(data=st.data(), delay=st.sampled_from([0.0, 5.0]))
    def finalize(self, data: st.DataObject, delay: float) -> None:
        known = [item for item in self.world.held if item.decision]
        items = data.draw(st.lists(st.sampled_from(known), min_size=1, unique=True), label="items")
        wishes = [data.draw(st.sampled_from(WISHES), label="wish") for _ in items]
        self.run(self.world.finalize(items, wishes, delay_seconds=delay))

    @precondition(lambda self: self.world.held)
    @rule()
    def finalize_all(self) -> None:
        world = self.world
        self.run(world.read([item for item in world.held if item.decision is None]))
        self.run(world.finalize(world.held[:], [OutcomeKind.READY] * len(world.held)))

    @precondition(lambda self: self.world.done)
    @rule(data=st.data())
    def finalize_again(self, data: st.DataObject) -> None:
        items = data.draw(
            st.lists(st.sampled_from(self.world.done), min_size=1, unique=True), label="items"
        )
        self.run(self.world.finalize(items, [OutcomeKind.READY] * len(items)))

    @precondition(lambda self: self.world.model.claims)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        place = data.draw(st.integers(0, len(self.world.claims) - 1), label="claim")
        self.run(self.world.give_back(self.world.claims[place]))

    @precondition(lambda self: self.world.model.claims)
    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        place = data.draw(st.integers(0, len(self.world.claims) - 1), label="claim")
        self.run(self.world.renew(self.world.claims[place]))

    @precondition(lambda self: self.world.rows)
    @rule(
        data=st.data(),
        events=st.lists(
            st.sampled_from(["edit", "edit", "redefine", "override", "expire", "dispatch"]),
            max_size=2,
        ),
        wish=st.sampled_from(WISHES),
    )
    def overtake(self, data: st.DataObject, events: list[str], wish: OutcomeKind) -> None:
        """What happens to cells between their reading and their landing."""
        world = self.world
        self.claim_much()
        self.run(world.read([item for item in world.held if item.decision is None]))
        for event in events:
            row = self._row(data)
            match event:
                case "edit":
                    value = data.draw(st.sampled_from(["1", "2", None]), label="value")
                    self.run(world.set_input(row, data.draw(st.sampled_from("xy")), value))
                case "redefine":
                    self.redefine(data)
                case "override":
                    self.run(world.override(row, self._column(data), "p"))
                case "expire":
                    world.pass_time(LEASE_SECONDS + 1.0)
                    self.run(world.reclaim())
                case _:
                    names = [self._column(data)]
                    self.run(world.dispatch(names, [row], force=True, only=None, lane=None))
        self.run(world.finalize(world.held[:], [wish] * len(world.held)))

    # -- time ---------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([1.0, 10.0, LEASE_SECONDS / 2, LEASE_SECONDS + 1.0]))
    def pass_time(self, seconds: float) -> None:
        self.world.pass_time(seconds)

    @precondition(lambda self: self.world.model.claims)
    @rule()
    def reclaim(self) -> None:
        self.run(self.world.reclaim())

    @precondition(lambda self: self.world.model.retry_at)
    @rule()
    def retry_due(self) -> None:
        self.run(self.world.retry_due())

    @rule()
    def heal(self) -> None:
        self.run(self.world.heal())


def run_machine(url: str, chosen: settings) -> None:
    """Run the state machine with a loop and a pool of its own."""
    with asyncio.Runner() as runner:
        context = open_pool(url, size_max=2)
        QueueMachine.runner = runner
        QueueMachine.pool = runner.run(context.__aenter__())
        try:
            run_state_machine_as_test(QueueMachine, settings=chosen)
        finally:
            runner.run(context.__aexit__(None, None, None))


BASE = settings(
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)


def test_the_queue_and_the_machine_agree_and_converge(database_url: str) -> None:
    run_machine(
        database_url,
        settings(
            BASE,
            max_examples=30,
            stateful_step_count=25,
            derandomize=True,
            phases=[Phase.generate],
        ),
    )


@pytest.mark.slow
def test_the_queue_and_the_machine_agree_over_many_interleavings(database_url: str) -> None:
    run_machine(
        database_url,
        settings(BASE, max_examples=300, stateful_step_count=50, phases=[Phase.generate]),
    )
