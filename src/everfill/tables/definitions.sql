-- Namespaces, collections and columns. Writers of columns hold the collection's row lock (get it
-- with lock_schema), so that names, positions and the DAG are checked against what they change.

-- name: ensure_namespace
-- Index: namespaces' name.
with made as (
    insert into namespaces (name, cap_cells) values (%(name)s, %(cap_cells)s)
    on conflict (name) do nothing
    returning namespace_id
)
select namespace_id from made union all
select namespace_id from namespaces where name = %(name)s
limit 1;

-- name: update_namespace
update namespaces set cap_cells = coalesce(%(cap_cells)s::int, cap_cells),
    weight = coalesce(%(weight)s::float8, weight)
where name = %(name)s;

-- name: create_collection
insert into collections (namespace_id, name, cap_cells)
values (%(namespace_id)s, %(name)s, %(cap_cells)s)
on conflict (namespace_id, name) do nothing
returning collection_id;

-- name: find_collections
-- By name within a namespace, by id, or all. Index: collections' keys.
select c.collection_id, c.namespace_id, n.name, c.name, c.cap_cells, c.schema_version, c.source,
    c.created_at
from collections c join namespaces n using (namespace_id)
where (%(namespace)s::text is null or n.name = %(namespace)s)
    and (%(name)s::text is null or c.name = %(name)s)
    and (%(collection_id)s::int is null or c.collection_id = %(collection_id)s)
order by n.name, c.name;

-- name: update_collection
update collections set name = coalesce(%(name)s::text, name),
    cap_cells = coalesce(%(cap_cells)s::int, cap_cells),
    source = coalesce(%(source)s::text::jsonb, source)
where collection_id = %(collection_id)s;

-- name: delete_collection
-- Rows and columns go by cascade; cells and queue entries have no foreign keys, for speed.
with claimed as (
    delete from claims where collection_id = %(collection_id)s
), queued as (
    delete from queue where collection_id = %(collection_id)s
), emptied as (
    delete from cells where collection_id = %(collection_id)s
), edges as (
    delete from column_references where collection_id = %(collection_id)s
)
delete from collections where collection_id = %(collection_id)s;

-- name: lock_schema
-- Locks: the collection's row, until the transaction ends.
select schema_version from collections where collection_id = %(collection_id)s for update;

-- name: raise_schema_version
update collections set schema_version = schema_version + 1
where collection_id = %(collection_id)s;

-- name: schema_version
select schema_version from collections where collection_id = %(collection_id)s;

-- name: columns
-- The columns of a collection in order. Index: columns' unique key.
select column_id, name, position, type, kind, template, options, cost_class::text,
    accepts_missing, schedule, cron, definition_version
from columns where collection_id = %(collection_id)s
order by position, column_id;

-- name: add_column
insert into columns (collection_id, name, position, type, kind, template, options, cost_class,
    accepts_missing, schedule, cron)
select %(collection_id)s, %(name)s,
    coalesce((select max(position) from columns where collection_id = %(collection_id)s), 0) + 1,
    %(type)s::text::jsonb, %(kind)s, %(template)s, %(options)s::text::jsonb,
    %(cost_class)s::cost_class, %(accepts_missing)s, %(schedule)s, %(cron)s
returning column_id;

-- name: redefine_column
-- A changed definition is a barrier: results of the old version can no longer land as current. A
-- changed cron expression counts from now: no time that had passed before is due.
update columns set type = %(type)s::text::jsonb, kind = %(kind)s, template = %(template)s,
    options = %(options)s::text::jsonb, cost_class = %(cost_class)s::cost_class,
    accepts_missing = %(accepts_missing)s, schedule = %(schedule)s, cron = %(cron)s,
    cron_ran_at = case when cron is distinct from %(cron)s then now() else cron_ran_at end,
    definition_version = definition_version + %(raise)s
where column_id = %(column_id)s;

-- name: rename_column
update columns set name = %(name)s where column_id = %(column_id)s;

-- name: set_references
-- The edges of one column, replaced whole.
with gone as (
    delete from column_references
    where column_id = %(column_id)s and upstream_id <> all (%(upstreams)s::int[])
)
insert into column_references (column_id, upstream_id, collection_id)
select %(column_id)s, u, %(collection_id)s from unnest(%(upstreams)s::int[]) u
on conflict do nothing;

-- name: drop_column_cells
-- Index: the key of cells, by collection.
delete from cells where collection_id = %(collection_id)s and column_id = any (%(columns)s::int[]);

-- name: drop_columns
with edges as (
    delete from column_references where column_id = any (%(columns)s::int[])
)
delete from columns where column_id = any (%(columns)s::int[]);

-- name: set_positions
update columns c set position = p.position
from unnest(%(columns)s::int[], %(positions)s::int[]) as p (column_id, position)
where c.column_id = p.column_id;

-- name: copy_rows
insert into rows (collection_id, row_id, source_key)
select %(target_id)s, row_id, source_key from rows where collection_id = %(collection_id)s;

-- name: copy_cells
-- Values as they stand, to the columns of the copy; what is on its way here is outdated there.
insert into cells (row_id, collection_id, column_id, user_value, computed_value, status, locked,
    definition_version, computed_at, input_hash, reason, provenance)
select c.row_id, %(target_id)s, m.target, c.user_value, c.computed_value,
    case when c.status in ('ready', 'not_found') and exists (
        select from queue q
        where q.collection_id = c.collection_id and q.row_id = c.row_id
            and q.column_id = c.column_id
    ) then 'outdated' else c.status end,
    c.locked,
    case when c.definition_version is not null
        then 1 - (d.definition_version - c.definition_version) end,
    c.computed_at, c.input_hash, c.reason, c.provenance
from cells c
join unnest(%(columns)s::int[], %(targets)s::int[]) as m (source, target) on m.source = c.column_id
join columns d on d.column_id = c.column_id
where c.collection_id = %(collection_id)s;

-- name: copy_row_tail
update collections t set row_tail = s.row_tail, source = s.source
from collections s
where t.collection_id = %(target_id)s and s.collection_id = %(collection_id)s;

-- name: record_change
insert into changes (collection_id, author, action, detail)
values (%(collection_id)s, %(author)s, %(action)s, %(detail)s::text::jsonb);

-- name: changes
-- The newest changes first.
select author, action, detail, changed_at from changes
where collection_id = %(collection_id)s order by change_id desc limit %(count_max)s;
