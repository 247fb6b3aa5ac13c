"""The `ai` kind: a column's prompt, answered by a model.

What speaks to providers is imported at the first call: the table of prices alone takes a moment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from everfill.compute.answers import ANSWERABLE
from everfill.compute.cuts import Policy
from everfill.compute.json_schema import check_schema
from everfill.compute.options import (
    check_names,
    check_output_type,
    choice_option,
    integer_option,
    number_option,
    text_option,
)
from everfill.compute.per_loop import PerLoop
from everfill.compute.protocol import (
    ComputeContext,
    ComputeKind,
    ComputeRequest,
    ComputeResult,
    CostClass,
    KindSpec,
    NotFound,
)
from everfill.kernel.errors import InvalidError
from everfill.tables.types import TEXT, ColumnType, TypeName
from everfill.tables.values import JsonValue

if TYPE_CHECKING:
    from everfill.compute.ai_client import AiClient

__all__ = ["AiKind"]

_SPEC: Final = KindSpec(
    name="ai",
    summary="A model's answer to a prompt, in the column's own type.",
    cost_class=CostClass.REMOTE,
    batch_max=1,
    default_type=TEXT,
    output_types=ANSWERABLE,
)
_OPTIONS: Final = frozenset(
    {"model", "temperature", "max_output_tokens", "system", "schema", "input_chars_max", "cut"}
)
_TEMPERATURE_MAX: Final = 2
_OUTPUT_TOKENS_MAX: Final = 1_000_000
_INPUT_CHARS_MAX: Final = 100_000_000


class AiKind(ComputeKind):
    """Options of one column; settings give the rest.

    `model`, `temperature`, `max_output_tokens` and `system`; `schema` of a JSON value;
    `input_chars_max` of a prompt, and how an input that is too long is `cut`.
    """

    def __init__(self) -> None:
        self._client = PerLoop(_make_client)

    @property
    def spec(self) -> KindSpec:
        """What the kind declares about itself."""
        return _SPEC

    def check(self, output_type: ColumnType, options: Mapping[str, JsonValue]) -> None:
        """Refuse types a model cannot write and options out of bounds."""
        check_output_type(_SPEC, output_type)
        check_names(options, _OPTIONS)
        text_option(options, "model")
        text_option(options, "system")
        number_option(options, "temperature", low=0, high=_TEMPERATURE_MAX)
        integer_option(options, "max_output_tokens", low=1, high=_OUTPUT_TOKENS_MAX)
        integer_option(options, "input_chars_max", low=1_000, high=_INPUT_CHARS_MAX)
        choice_option(options, "cut", [*Policy], Policy.HEAD)
        if "schema" in options:
            check_schema(options["schema"])
            if output_type.name is not TypeName.JSON:
                message = f"Option schema is for JSON columns, and this one is {output_type.name}."
                raise InvalidError("option_invalid", message, hint="Make its type json.")

    async def compute(
        self, requests: Sequence[ComputeRequest], context: ComputeContext
    ) -> Sequence[ComputeResult]:
        """Ask the model; one request is the grain."""
        return [await self._answer(request, context) for request in requests]

    async def _answer(self, request: ComputeRequest, context: ComputeContext) -> ComputeResult:
        if not request.text.strip():
            return NotFound(reason="the prompt is empty")
        return await self._client.get().answer(request, context)

    async def aclose(self) -> None:
        """Close the running loop's connections."""
        if client := self._client.take():
            await client.aclose()


def _make_client() -> AiClient:
    from everfill.compute.ai_client import AiClient  # noqa: PLC0415 - see above

    return AiClient()
