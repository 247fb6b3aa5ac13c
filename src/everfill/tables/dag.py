"""The graph of a collection's columns: order, closure, cycles. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

from everfill.kernel.errors import InvalidError
from everfill.kernel.ids import ColumnId

__all__ = ["check_acyclic", "downstream", "topological_order"]

Upstreams = Mapping[ColumnId, Sequence[ColumnId]]


def topological_order(upstreams: Upstreams) -> list[ColumnId]:
    """Every column after all that it reads; ties in order of id, so that the result is stable."""
    sorter = TopologicalSorter({key: sorted(upstreams[key]) for key in sorted(upstreams)})
    return list(sorter.static_order())


def downstream(upstreams: Upstreams, roots: Iterable[ColumnId]) -> list[ColumnId]:
    """Everything that depends on the roots, directly or not, without them, in topological order."""
    reached = set(roots)
    found: list[ColumnId] = []
    for column in topological_order(upstreams):
        if column not in reached and any(up in reached for up in upstreams.get(column, ())):
            reached.add(column)
            found.append(column)
    return found


def check_acyclic(upstreams: Upstreams, names: Mapping[ColumnId, str]) -> None:
    """Refuse a graph with a cycle.

    Raises:
        InvalidError: `cycle`, with the path by name.
    """
    try:
        topological_order(upstreams)
    except CycleError as error:
        path = " -> ".join(names[column] for column in reversed(error.args[1]))
        raise InvalidError(
            "cycle",
            f"The columns would depend on each other in a circle: {path}.",
            hint="Break the circle by removing one of these references.",
        ) from None
