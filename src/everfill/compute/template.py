"""The `template` kind: a column whose value is its template, filled in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from everfill.compute.options import check_names, check_output_type
from everfill.compute.protocol import (
    ComputeContext,
    ComputeKind,
    ComputeRequest,
    ComputeResult,
    CostClass,
    Failure,
    KindSpec,
    Value,
)
from everfill.kernel.errors import InvalidError
from everfill.tables.parse import parse_value
from everfill.tables.types import FILE_TYPES, TEXT, ColumnType, TypeName
from everfill.tables.values import JsonValue

__all__ = ["TemplateKind"]

_SPEC: Final = KindSpec(
    name="template",
    summary="Text put together from other columns.",
    cost_class=CostClass.INSTANT,
    batch_max=1_000,
    default_type=TEXT,
    output_types=frozenset(TypeName) - FILE_TYPES,
    pure=True,
)


class TemplateKind(ComputeKind):
    """The filled-in text, read as the column's type."""

    @property
    def spec(self) -> KindSpec:
        """What the kind declares about itself."""
        return _SPEC

    def check(self, output_type: ColumnType, options: Mapping[str, JsonValue]) -> None:
        """Refuse options and types that are not the kind's."""
        check_output_type(_SPEC, output_type)
        check_names(options, ())

    async def compute(
        self,
        requests: Sequence[ComputeRequest],
        context: ComputeContext,  # noqa: ARG002 - the protocol gives it
    ) -> Sequence[ComputeResult]:
        """Read each text as its column's type; what does not fit fails for good."""
        return [_fill(request) for request in requests]


def _fill(request: ComputeRequest) -> ComputeResult:
    if request.output_type.name is TypeName.TEXT:
        return Value(value=request.text)
    try:
        return Value(value=parse_value(request.text, request.output_type))
    except InvalidError as error:
        return Failure(code=error.code, message=str(error), transient=False)
