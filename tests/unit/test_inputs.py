from __future__ import annotations

from dataclasses import replace

import pytest

from everfill.autofill.inputs import Compute, Pinned, Plan, Unchanged, Waiting, decide, make_plan
from everfill.compute.protocol import CostClass, KindSpec
from everfill.kernel.ids import CollectionId, ColumnId
from everfill.tables.cells import CellStatus, Input
from everfill.tables.schema import Column, Computation, Schema
from everfill.tables.types import TEXT, ColumnType, TypeName
from everfill.tables.values import JsonValue

KIND = KindSpec(
    name="template",
    summary="",
    cost_class=CostClass.INSTANT,
    batch_max=10,
    default_type=TEXT,
    output_types=frozenset({TypeName.TEXT}),
)


def column(number: int, name: str, template: str | None = None, **more: object) -> Column:
    computation = None
    if template is not None:
        computation = Computation(
            kind="template",
            template=template,
            cost_class="instant",
            **more,  # type: ignore[arg-type]
        )
    return Column(
        column_id=ColumnId(number),
        name=name,
        position=number,
        type=TEXT,
        computation=computation,
        definition_version=1,
    )


def plan_of(*columns: Column, kind: KindSpec = KIND) -> Plan:
    """The plan of the last column."""
    schema = Schema(collection_id=CollectionId(1), version=1, columns=columns)
    return make_plan(schema, columns[-1], kind)


def given(text: str | None, status: CellStatus = CellStatus.READY, **more: object) -> Input:
    fields = {"overridden": False, "locked": False, "input_hash": None, "computed": True, **more}
    return Input(text, status, **fields)  # type: ignore[arg-type]


WORD = column(1, "word")
PLAN = plan_of(WORD, column(2, "one", "1 {{#1}}"))


def hash_of(plan: Plan, text: str = '"tea"', value: JsonValue = "tea") -> bytes:
    decision = decide(plan, None, [given(text)], [value], forced=False)
    assert isinstance(decision, Compute)
    return decision.input_hash


def test_a_cell_with_its_inputs_becomes_a_request() -> None:
    decision = decide(PLAN, None, [given('"tea"')], ["tea"], forced=False)
    assert isinstance(decision, Compute)
    assert decision.request.text == "1 tea"
    assert decision.request.inputs == {"word": "tea"}
    assert decision.request.source is None


def test_a_template_that_is_one_reference_hands_on_the_value_itself() -> None:
    plan = plan_of(WORD, column(2, "one", "{{#1}}"))
    decision = decide(plan, None, [given("3.5")], [3.5], forced=False)
    assert isinstance(decision, Compute)
    assert (decision.request.source, decision.request.text) == (3.5, "3.5")


@pytest.mark.parametrize(
    ("own", "pinned"),
    [
        (given(None, overridden=True), True),
        (given(None, locked=True), True),
        (given(None), False),
    ],
)
def test_a_typed_over_or_locked_cell_is_left_alone(own: Input, *, pinned: bool) -> None:
    decision = decide(PLAN, own, [given('"tea"')], ["tea"], forced=True)
    assert isinstance(decision, Pinned) is pinned


@pytest.mark.parametrize(
    ("upstream", "code"),
    [
        (None, "input_missing"),
        (given(None), "input_missing"),
        (given("null"), "input_missing"),
    ],
)
def test_an_input_without_a_value_is_waited_for(upstream: Input | None, code: str) -> None:
    decision = decide(PLAN, None, [upstream], [None], forced=True)
    assert decision == Waiting(code, "word")


@pytest.mark.parametrize("status", ["failed", "not_found", "waiting", "empty"])
def test_an_upstream_without_an_answer_is_waited_for_by_its_status(status: str) -> None:
    plan = plan_of(WORD, column(2, "one", "{{#1}}"), column(3, "two", "{{#2}}"))
    upstream = given('"old"', CellStatus(status))
    decision = decide(plan, None, [upstream], ["old"], forced=False)
    assert decision == Waiting(f"upstream_{status}", "one")
    typed = replace_input(upstream, overridden=True)
    assert isinstance(decide(plan, None, [typed], ["old"], forced=False), Compute)


def test_the_empty_string_is_no_missing_input() -> None:
    assert isinstance(decide(PLAN, None, [given('""')], [""], forced=False), Compute)


def test_a_column_that_accepts_missing_inputs_reads_them_as_nothing() -> None:
    plan = plan_of(WORD, column(2, "one", "<{{#1}}>", accepts_missing=True))
    decision = decide(plan, None, [None], [None], forced=False)
    assert isinstance(decision, Compute)
    assert (decision.request.text, decision.request.inputs) == ("<>", {})


def test_the_same_inputs_are_not_computed_again_unless_forced() -> None:
    own = given('"1 tea"', input_hash=hash_of(PLAN))
    assert decide(PLAN, own, [given('"tea"')], ["tea"], forced=False) == Unchanged()
    assert isinstance(decide(PLAN, own, [given('"tea"')], ["tea"], forced=True), Compute)
    assert isinstance(decide(PLAN, own, [given('"rice"')], ["rice"], forced=False), Compute)


def test_a_hash_without_its_answer_saves_nothing() -> None:
    own = given(None, CellStatus.FAILED, input_hash=hash_of(PLAN), computed=False)
    assert isinstance(decide(PLAN, own, [given('"tea"')], ["tea"], forced=False), Compute)


def test_the_hash_survives_a_rename_and_a_copy() -> None:
    renamed = plan_of(column(1, "drink"), column(2, "uno", "1 {{#1}}"))
    copied = plan_of(column(71, "word"), column(72, "one", "1 {{#71}}"))
    assert hash_of(PLAN) == hash_of(renamed) == hash_of(copied)


def test_the_hash_changes_with_everything_that_decides_the_value() -> None:
    number = replace(column(2, "one", "1 {{#1}}"), type=ColumnType(name=TypeName.NUMBER))
    others = [
        hash_of(PLAN, '"rice"', "rice"),
        hash_of(plan_of(WORD, column(2, "one", "2 {{#1}}"))),
        hash_of(plan_of(WORD, column(2, "one", "1 {{#1}}", options={"a": 1}))),
        hash_of(plan_of(WORD, number)),
        hash_of(plan_of(WORD, column(2, "one", "1 {{#1}}"), kind=replace(KIND, version=2))),
        hash_of(PLAN, '"1"', "1"),
        hash_of(PLAN, "1", 1),
    ]
    assert len({hash_of(PLAN), *others}) == 1 + len(others)


def test_the_hash_survives_a_copy_whose_ids_are_in_another_order() -> None:
    options: dict[str, JsonValue] = {"a": 1, "b": 2}
    turned: dict[str, JsonValue] = {"b": 2, "a": 1}
    plan = plan_of(WORD, column(2, "of"), column(3, "one", "{{#1}} {{#2}} {{#1}}", options=options))
    copy = plan_of(
        column(8, "of"), column(9, "word"), column(7, "one", "{{#9}} {{#8}} {{#9}}", options=turned)
    )
    inputs = [given('"tea"'), given('"Assam"')]
    first, second = (
        decide(either, None, inputs, ["tea", "Assam"], forced=False) for either in (plan, copy)
    )
    assert isinstance(first, Compute)
    assert isinstance(second, Compute)
    assert first.request.text == second.request.text == "tea Assam tea"
    assert first.input_hash == second.input_hash


def test_the_hash_tells_which_column_stands_where() -> None:
    inputs = [given('"a"'), given('"a"')]
    hashes: set[bytes] = set()
    for template in ("{{#1}}{{#2}}{{#1}}", "{{#1}}{{#2}}{{#2}}", "{{#1}}{{#2}}"):
        plan = plan_of(WORD, column(2, "other"), column(3, "one", template))
        decision = decide(plan, None, inputs, ["a", "a"], forced=False)
        assert isinstance(decision, Compute)
        hashes.add(decision.input_hash)
    assert len(hashes) == 3


def test_nothing_null_and_the_empty_string_are_told_apart_as_far_as_they_differ() -> None:
    plan = plan_of(WORD, column(2, "one", "<{{#1}}>", accepts_missing=True))
    hashes: list[bytes] = []
    for upstream in (None, given("null"), given('""')):
        decision = decide(plan, None, [upstream], [""], forced=False)
        assert isinstance(decision, Compute)
        hashes.append(decision.input_hash)
    nothing, null, empty = hashes
    assert nothing == null != empty


def test_a_failed_upstream_is_nothing_to_a_column_that_accepts_missing_inputs() -> None:
    plan = plan_of(
        WORD, column(2, "one", "{{#1}}"), column(3, "two", "<{{#2}}>", accepts_missing=True)
    )
    failed = given('"old"', CellStatus.FAILED)
    decision = decide(plan, None, [failed], ["old"], forced=False)
    assert isinstance(decision, Compute)
    assert (decision.request.text, decision.request.inputs) == ("<>", {})


def test_a_value_typed_over_as_null_is_waited_for_whatever_was_computed() -> None:
    plan = plan_of(WORD, column(2, "one", "{{#1}}"), column(3, "two", "{{#2}}"))
    typed = given("null", overridden=True)
    assert decide(plan, None, [typed], [None], forced=False) == Waiting("input_missing", "one")


def test_the_first_input_that_is_not_there_is_named() -> None:
    plan = plan_of(WORD, column(2, "other"), column(3, "one", "{{#2}}{{#1}}"))
    inputs = [None, given("null")]
    assert decide(plan, None, inputs, [None, None], forced=False) == Waiting(
        "input_missing", "other"
    )


def test_an_outdated_upstream_is_read_as_it_stands() -> None:
    plan = plan_of(WORD, column(2, "one", "{{#1}}"), column(3, "two", "{{#2}}"))
    outdated = given('"old"', CellStatus.OUTDATED)
    assert isinstance(decide(plan, None, [outdated], ["old"], forced=False), Compute)


def test_an_answer_of_nothing_is_an_answer_and_is_not_paid_for_twice() -> None:
    own = given(None, CellStatus.NOT_FOUND, input_hash=hash_of(PLAN), computed=False)
    assert decide(PLAN, own, [given('"tea"')], ["tea"], forced=False) == Unchanged()


def test_a_lock_outweighs_an_input_that_is_not_there() -> None:
    own = given('"1 tea"', locked=True)
    assert decide(PLAN, own, [None], [None], forced=False) == Pinned()


def test_two_inputs_cannot_trade_their_borders() -> None:
    plan = plan_of(WORD, column(2, "other"), column(3, "one", "{{#1}}{{#2}}"))
    first = decide(plan, None, [given('"ab"'), given('"c"')], ["ab", "c"], forced=False)
    second = decide(plan, None, [given('"a"'), given('"bc"')], ["a", "bc"], forced=False)
    assert isinstance(first, Compute)
    assert isinstance(second, Compute)
    assert first.request.text == second.request.text
    assert first.input_hash != second.input_hash


def replace_input(item: Input, **more: object) -> Input:
    return item._replace(**more)  # type: ignore[arg-type]
