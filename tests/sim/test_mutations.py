"""The simulation can fail: an engine with one rule broken is found out within a few seeds."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import sim_claim_sql
import sim_fill_sql
import sim_world
from sim_postgres import STATEMENTS, Params, Rows, Statement
from sim_rows import Transaction
from sim_world import Profile, World

from everfill.autofill import immediate, inputs, machine
from everfill.autofill.cell_worker import CellWorker
from everfill.autofill.filler import Filler
from everfill.autofill.finalizer import Finalizer, Result
from everfill.autofill.immediate import Answer, Filled, Immediate
from everfill.autofill.machine import Cell, Event, Finalize, State, Token
from everfill.autofill.queue import Queue

SEEDS = 40

Break = Callable[[pytest.MonkeyPatch], None]


def _land(monkeypatch: pytest.MonkeyPatch, **ignored: str) -> None:
    """Let a finalize pass for one whose token has what the cell has."""

    def finalize(cell: Cell, event: Event) -> Cell:
        assert isinstance(event, Finalize)
        token: Token = replace(event.token, **{k: getattr(cell, v) for k, v in ignored.items()})
        return machine._finalize(cell, replace(event, token=token))

    monkeypatch.setitem(machine.TRANSITIONS, (State.COMPUTING, Finalize), finalize)


def place_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    _land(monkeypatch, place="place")


def signals_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    _land(monkeypatch, signal="signal")


def definitions_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    _land(monkeypatch, definition="definition")


def retries_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def finalize(cell: Cell, event: Event) -> Cell:
        after = machine._finalize(cell, event)
        return replace(after, tries=0) if after.state is State.RETRYING else after

    monkeypatch.setitem(machine.TRANSITIONS, (State.COMPUTING, Finalize), finalize)


def lost_workers_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        machine.TRANSITIONS,
        (State.COMPUTING, machine.Expire),
        lambda cell, event: machine._place(cell, ready=event.ready),
    )


def caps_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sim_claim_sql, "in_flight", lambda _tx: (Counter(), Counter()))


def dependents_are_not_released(monkeypatch: pytest.MonkeyPatch) -> None:
    async def release(*_: object) -> int:
        return 0

    monkeypatch.setattr(Queue, "_release", release)


def claims_never_end(monkeypatch: pytest.MonkeyPatch) -> None:
    def count_down(_self: Finalizer, _batch: Sequence[Result]) -> list[int]:
        return []

    monkeypatch.setattr(Finalizer, "_count_down", count_down)


def slots_stay_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CellWorker, "_done", lambda _self, _counts: None)


def leases_are_not_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def sleep(_self: CellWorker) -> None:
        await asyncio.sleep(60.0)

    monkeypatch.setattr(CellWorker, "_renew_leases", sleep)


def definitions_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    load = Filler._load_plans

    async def load_once(self: Filler, definitions: Any, collection_id: Any) -> Any:
        known = self._plans.get(collection_id)
        return known[1] if known else await load(self, definitions, collection_id)

    monkeypatch.setattr(Filler, "_load_plans", load_once)


def inputs_are_not_hashed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "_hash", lambda plan, _shown: plan.fingerprint[:16])


def lost_results_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """An outage at a finalize ends its cells as if they were home, under leases that go on."""
    deliver = Finalizer._finalize

    async def finalize(self: Finalizer, *given: Any) -> Any:
        try:
            return await asyncio.wait_for(deliver(self, *given), 0.2)
        except TimeoutError:
            self._left.update({outcome.cell.claim_id: 1 for outcome in given[1]})
            return {}

    monkeypatch.setattr(Finalizer, "_finalize", finalize)


def stored_cells_are_taken_for_new(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = Statement("known_rows", lambda *_: [])
    monkeypatch.setitem(STATEMENTS, sim_fill_sql.FILL["known_rows"], nothing)


def queued_cells_are_taken_for_new(monkeypatch: pytest.MonkeyPatch) -> None:
    def known_rows(tx: Transaction, p: Params) -> Rows:
        kept = [key for key, _ in tx.scan("cells") if key.collection_id == p["collection_id"]]
        return [(key.row_id,) for key in kept if key.column_id in p["columns"]]

    statement = Statement("known_rows", known_rows)
    monkeypatch.setitem(STATEMENTS, sim_fill_sql.FILL["known_rows"], statement)


def filled_rows_are_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    fill = Immediate.fill

    async def fill_alone(self: Immediate, *given: Any) -> Filled:
        return replace(await fill(self, *given), rest=())

    monkeypatch.setattr(Immediate, "fill", fill_alone)


def filled_rows_forget_their_definition(monkeypatch: pytest.MonkeyPatch) -> None:
    land = immediate._land

    async def land_first(connection: Any, collection_id: Any, answers: Sequence[Answer]) -> None:
        await land(connection, collection_id, [answer._replace(version=1) for answer in answers])

    monkeypatch.setattr(immediate, "_land", land_first)


BROKEN: list[tuple[Break, tuple[str, ...]]] = [
    (place_is_ignored, ("edits", "freezes")),
    (signals_are_ignored, ("edits",)),
    (definitions_are_ignored, ("edits",)),
    (retries_are_not_counted, ("failures",)),
    (lost_workers_are_not_counted, ("pills",)),
    (caps_are_not_counted, ()),
    (dependents_are_not_released, ()),
    (claims_never_end, ("edits",)),
    (slots_stay_taken, ()),
    (leases_are_not_renewed, ()),
    (definitions_are_read_once, ("edits",)),
    (inputs_are_not_hashed, ("edits",)),
    (lost_results_are_forgotten, ("cuts",)),
    (stored_cells_are_taken_for_new, ("edits",)),
    (queued_cells_are_taken_for_new, ("edits", "failures")),
    (filled_rows_are_not_followed, ()),
    (filled_rows_forget_their_definition, ("edits",)),
]


@pytest.mark.parametrize(("broken", "faults"), BROKEN)
def test_a_broken_rule_is_found_within_a_few_seeds(
    broken: Break, faults: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    profile = Profile.of(*faults)
    assert not World(0, profile=profile).run().failures, "the whole engine passes"
    broken(monkeypatch)
    monkeypatch.setattr(sim_world, "PATIENCE_SECONDS", 60.0)  # what never settles is soon known
    seeds = (seed for seed in range(SEEDS) if World(seed, profile=profile).run().failures)
    assert next(seeds, None) is not None, "no seed found it"
