from __future__ import annotations

import pytest

from everfill.kernel.errors import InvalidError
from everfill.kernel.ids import ColumnId
from everfill.tables import dag

A, B, C, D, E = (ColumnId(n) for n in range(1, 6))
DIAMOND = {A: (), B: (A,), C: (A,), D: (C, B), E: ()}


def test_columns_come_after_what_they_read() -> None:
    order = dag.topological_order(DIAMOND)
    assert all(order.index(up) < order.index(key) for key, ups in DIAMOND.items() for up in ups)


def test_downstream_reaches_through_the_diamond_and_leaves_out_the_roots() -> None:
    assert dag.downstream(DIAMOND, [A]) in ([B, C, D], [C, B, D])
    assert dag.downstream(DIAMOND, [B]) == [D]
    assert dag.downstream(DIAMOND, [E]) == []


def test_a_root_that_depends_on_another_root_is_not_its_own_dependent() -> None:
    assert dag.downstream(DIAMOND, [A, B]) in ([C, D], [D, C])


def test_a_cycle_is_refused_with_its_path() -> None:
    names = {A: "a", B: "b", C: "c"}
    with pytest.raises(InvalidError) as caught:
        dag.check_acyclic({A: (C,), B: (A,), C: (B,)}, names)
    assert caught.value.code == "cycle"
    path = caught.value.message.split(": ")[1].rstrip(".").split(" -> ")
    assert path[0] == path[-1]
    assert set(path) == {"a", "b", "c"}


def test_a_column_that_reads_itself_is_a_cycle() -> None:
    with pytest.raises(InvalidError, match="a -> a"):
        dag.check_acyclic({A: (A,)}, {A: "a"})
