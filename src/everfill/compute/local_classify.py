"""The `local:classify` kind: which of a column's labels a text is about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import exp
from typing import TYPE_CHECKING, Final

from everfill.compute.embedding import embed, excerpt
from everfill.compute.local_base import LocalKind
from everfill.compute.options import check_names, check_output_type, number_option
from everfill.compute.protocol import ComputeRequest, ComputeResult, CostClass, KindSpec, Value
from everfill.kernel.errors import InvalidError
from everfill.tables.types import ColumnType, TypeName
from everfill.tables.values import JsonValue

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["ClassifyKind"]

_TEXT_CHARS_MAX: Final = 2_000
_THRESHOLD: Final = 0.6
_TEMPERATURE: Final = 0.02
"""Similarities of one text with several labels lie within a few hundredths of each other."""

_SPEC: Final = KindSpec(
    name="local:classify",
    summary="Which of the column's choices a text is about, by the meaning of the labels.",
    cost_class=CostClass.LOCAL,
    batch_max=32,
    default_type=ColumnType(name=TypeName.CHOICE, free=True),
    output_types=frozenset({TypeName.CHOICE, TypeName.CHOICES}),
)


class ClassifyKind(LocalKind):
    """The nearest label of a choice column; of a choices column, every label near enough.

    Option `threshold` (choices only, 0 to 1, default 0.6): the share of the best label's weight
    that another label needs.
    """

    @property
    def spec(self) -> KindSpec:
        """What the kind declares about itself."""
        return _SPEC

    def check(self, output_type: ColumnType, options: Mapping[str, JsonValue]) -> None:
        """Refuse a column without labels: there is nothing to choose from."""
        check_output_type(_SPEC, output_type)
        check_names(options, {"threshold"})
        number_option(options, "threshold", low=0, high=1)
        if not output_type.choices:
            message = "local:classify needs the labels to choose from."
            hint = f"Write the type as {output_type.name}(first,second)."
            raise InvalidError("choices_empty", message, hint=hint)

    def fill(self, requests: Sequence[ComputeRequest]) -> Sequence[ComputeResult]:
        """Weigh each text against its column's labels."""
        rows = embed([excerpt(request.text, _TEXT_CHARS_MAX) for request in requests])
        return [_choose(request, row) for request, row in zip(requests, rows, strict=True)]


def _choose(request: ComputeRequest, row: NDArray[np.float32]) -> ComputeResult:
    labels = request.output_type.choices
    near: list[float] = (_label_rows(labels) @ row).tolist()
    best = max(near)
    if request.output_type.name is TypeName.CHOICE:
        return Value(value=labels[near.index(best)])
    threshold = number_option(request.options, "threshold", low=0, high=1, default=_THRESHOLD)
    chosen: list[JsonValue] = [
        label
        for label, similarity in zip(labels, near, strict=True)
        if exp((similarity - best) / _TEMPERATURE) >= (threshold or 0)
    ]
    return Value(value=chosen)


@lru_cache(maxsize=64)
def _label_rows(labels: tuple[str, ...]) -> NDArray[np.float32]:
    """One row a label, as a sentence about it: measured better than the bare label."""
    return embed([f"This text is about {label}." for label in labels], passages=True)
