"""Many collections with much queued, made by SQL in a moment."""

from __future__ import annotations

from dataclasses import dataclass

from everfill.infra.postgres import Connection

COLUMNS = 4  # an input and three computed ones, the last two reading the first two
SMALL_ROWS = 10

_FILL = """
with n as (
    insert into namespaces (name, cap_cells) values ('n', 1000000) returning namespace_id
)
insert into collections (namespace_id, name, cap_cells)
select namespace_id, 'c' || g, 1000000 from n, generate_series(1, %(collections)s) g;

insert into columns (collection_id, name, position, type, kind, template, cost_class)
select c.collection_id, v.name, v.position, '{"name": "text"}', v.kind, v.template,
    v.cost_class::cost_class
from collections c, (values
    ('x', 1, null, null, null), ('a', 2, 'template', '', 'instant'),
    ('b', 3, 'template', '', 'instant'), ('c', 4, 'template', '', 'instant')
) v (name, position, kind, template, cost_class)
order by c.collection_id, v.position;

insert into column_references (column_id, upstream_id, collection_id)
select d.column_id, u.column_id, d.collection_id
from columns d join columns u using (collection_id)
where (d.name, u.name) in (('a', 'x'), ('b', 'a'), ('c', 'a'), ('c', 'b'));

insert into rows (collection_id, row_id)
select collection_id, r from collections,
    generate_series(1, case when name = 'c1' then %(rows)s else %(small_rows)s end) r;

insert into cells (row_id, collection_id, column_id, computed_value, status, definition_version)
select r.row_id, r.collection_id, c.column_id, '"some value"', 'ready', 1
from rows r join columns c using (collection_id);

insert into lanes (collection_id, namespace_id, cost_class)
select collection_id, namespace_id, 'instant' from collections order by collection_id;
insert into lane_tails (lane_id, tail_seq)
select l.lane_id, (select count(*) from rows r where r.collection_id = l.collection_id)
from lanes l;

insert into queue (row_id, collection_id, column_id, seq, lane_id, interactive)
select r.row_id, r.collection_id, c.column_id, case c.name when 'a' then r.row_id end, l.lane_id,
    true
from rows r join columns c using (collection_id) join lanes l using (collection_id)
where c.name <> 'x'
"""


@dataclass(frozen=True)
class Filled:
    """Collection 1 has the rows; `columns` are its computed ones a, b and c."""

    collection_id: int
    lane_id: int
    columns: tuple[int, int, int]
    rows: int


async def fill(connection: Connection, *, rows: int, collections: int = 20) -> Filled:
    """Queue three cells of each of many rows: the first with a place, the others blocked."""
    parameters = {"collections": collections, "rows": rows, "small_rows": SMALL_ROWS}
    for statement in _FILL.split(";\n"):
        given = {k: v for k, v in parameters.items() if f"%({k})s" in statement}
        await connection.execute(statement.encode(), given or None, prepare=False)
    cursor = await connection.execute(
        "select c.collection_id, l.lane_id, array_agg(d.column_id order by d.position)"
        " from collections c join lanes l using (collection_id)"
        " join columns d using (collection_id)"
        " where c.name = 'c1' and d.kind is not null group by 1, 2"
    )
    row = await cursor.fetchone()
    assert row
    return Filled(row[0], row[1], tuple(row[2]), rows)
