"""The `local:embed` kind: a text's place in a space where near means similar."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from everfill.compute.embedding import DIMENSIONS, embed, excerpt
from everfill.compute.local_base import LocalKind
from everfill.compute.options import check_names, check_output_type
from everfill.compute.protocol import ComputeRequest, ComputeResult, CostClass, KindSpec, Value
from everfill.kernel.errors import InvalidError
from everfill.tables.types import ColumnType, TypeName
from everfill.tables.values import JsonValue

__all__ = ["EmbedKind"]

_TEXT_CHARS_MAX: Final = 8_000
"""About 3 s; of a longer text four pieces count, from its start to its end."""

_SPEC: Final = KindSpec(
    name="local:embed",
    summary="A text as a vector of 384 numbers, for semantic search.",
    cost_class=CostClass.LOCAL,
    batch_max=32,
    default_type=ColumnType(name=TypeName.VECTOR, dimensions=DIMENSIONS),
    output_types=frozenset({TypeName.VECTOR}),
)


class EmbedKind(LocalKind):
    """A vector of length 1: the dot product of two is their similarity."""

    @property
    def spec(self) -> KindSpec:
        """What the kind declares about itself."""
        return _SPEC

    def check(self, output_type: ColumnType, options: Mapping[str, JsonValue]) -> None:
        """Refuse a vector of another length than the model's."""
        check_output_type(_SPEC, output_type)
        check_names(options, ())
        if output_type.dimensions not in {None, DIMENSIONS}:
            message = f"local:embed gives {DIMENSIONS} numbers, not {output_type.dimensions}."
            hint = f"Write the type as vector({DIMENSIONS})."
            raise InvalidError("type_unsupported", message, hint=hint)

    def fill(self, requests: Sequence[ComputeRequest]) -> Sequence[ComputeResult]:
        """Embed each text as a passage."""
        texts = [excerpt(request.text, _TEXT_CHARS_MAX) for request in requests]
        rows: list[list[JsonValue]] = embed(texts, passages=True).tolist()
        return [Value(value=row) for row in rows]
