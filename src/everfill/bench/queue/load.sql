-- The load of the queue benchmark: collections with rows, made by the server itself.

-- name: make_namespaces
-- Namespaces with the caps of an ordinary installation.
insert into namespaces (name, cap_cells)
select 'bench-' || n, %(cap_cells)s from generate_series(1, %(namespaces)s::int) n
returning namespace_id;

-- name: make_collection
-- One collection with its rows: an input column and one computed from it.
with made as (
    insert into collections (namespace_id, name, cap_cells, row_tail)
    values (%(namespace_id)s, %(name)s, %(cap_cells)s, %(rows)s)
    returning collection_id
), source as (
    insert into columns (collection_id, name, position, type)
    select collection_id, 'input', 1, '{}' from made returning column_id
), computed as (
    insert into columns (collection_id, name, position, type, kind, template, cost_class)
    select collection_id, 'output', 2, '{}', 'template', 'x', 'instant' from made
    returning column_id
), reads as (
    insert into column_references (column_id, upstream_id, collection_id)
    select c.column_id, s.column_id, m.collection_id from made m, source s, computed c
), filled as (
    insert into rows (collection_id, row_id)
    select m.collection_id, n from made m, generate_series(1, %(rows)s::bigint) n
)
select m.collection_id, c.column_id from made m, computed c;

-- name: make_run
-- The bulk run whose lane holds the collection's cells.
insert into runs (collection_id, author, reason, column_ids, last_row_id)
values (%(collection_id)s, 'bench', 'bench', array[%(column_id)s::int], %(rows)s)
returning run_id;

-- name: in_flight
-- Most cells in flight now: of one collection, of one namespace.
select coalesce(max(of_collection), 0)::int, coalesce(max(of_namespace), 0)::int
from (
    select sum(sum(n)) over (partition by namespace_id) as of_namespace, sum(n) as of_collection
    from claims group by namespace_id, collection_id
) f;

-- name: written
-- Bytes of write-ahead log so far.
select pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint;

-- name: sizes
-- Bytes of the queue, with its indexes.
select pg_total_relation_size('queue')::bigint;

-- name: landed
-- Cells that hold the benchmark's answer.
select count(*) from cells where status = 'ready';
