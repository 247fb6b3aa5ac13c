from __future__ import annotations

from everfill.compute.protocol import ComputeContext, ComputeRequest, CostClass, Failure, Value
from everfill.compute.registry import get_kind
from everfill.kernel.config import Settings
from everfill.tables.types import TEXT, ColumnType, TypeName

CONTEXT = ComputeContext(settings=Settings(), files=None)


def request(text: str, output_type: ColumnType = TEXT) -> ComputeRequest:
    return ComputeRequest(text=text, inputs={}, source=None, output_type=output_type, options={})


async def test_a_batch_of_templates_gives_its_texts_in_order() -> None:
    kind = get_kind("template")
    texts = [f"Row {number}" for number in range(kind.spec.batch_max)]

    results = await kind.compute([request(text) for text in texts], CONTEXT)

    assert results == [Value(value=text) for text in texts]
    assert kind.spec.cost_class is CostClass.INSTANT


async def test_a_text_is_kept_to_the_letter_even_when_empty() -> None:
    results = await get_kind("template").compute([request(" a\x00 "), request("")], CONTEXT)

    assert results == [Value(value=" a\x00 "), Value(value="")]


async def test_a_text_that_does_not_fit_the_type_fails_for_good_and_alone() -> None:
    number = ColumnType(name=TypeName.NUMBER)

    good, bad = await get_kind("template").compute(
        [request("12.5", number), request("twelve", number)], CONTEXT
    )

    assert good == Value(value=12.5)
    assert isinstance(bad, Failure)
    assert (bad.code, bad.transient) == ("value_invalid", False)
    assert "twelve" in bad.message
