-- Rows and cells. What changes a computed cell's inputs is followed by a dispatch in the same
-- transaction, under the collection's lock (autofill/queue.sql).

-- name: reserve_rows
-- Take the next numbers of a collection. Locks: the collection's row.
update collections set row_tail = row_tail + %(count)s
where collection_id = %(collection_id)s
returning row_tail - %(count)s + 1;

-- name: copy_rows_in
copy rows (collection_id, row_id, source_key) from stdin;

-- name: copy_cells_in
copy cells (row_id, collection_id, column_id, user_value, status) from stdin;

-- name: rows_by_key
-- Index: rows_source_key.
select source_key, row_id from rows
where collection_id = %(collection_id)s and source_key = any (%(keys)b::text[]);

-- name: next_rows
-- The next rows of a collection from a number on, for work in chunks. Index: rows' key.
select row_id from rows
where collection_id = %(collection_id)s and row_id between %(from)s and %(to)s
order by row_id limit %(count_max)s;

-- name: last_row
select coalesce(max(row_id), 0) from rows where collection_id = %(collection_id)s;

-- name: count_rows
select count(*) from rows where collection_id = %(collection_id)s;

-- name: existing_rows
-- Which of the given rows exist. Index: rows' key.
select row_id from rows
where collection_id = %(collection_id)s and row_id = any (%(rows)b::bigint[]);

-- name: set_values
-- Set typed values; returns the cells whose shown value changed by it. Index: the key of cells.
with wanted as (
    select * from unnest(%(rows)b::bigint[], %(columns)b::int[], %(values)b::text[])
        as w (row_id, column_id, value)
), before as materialized (
    select w.row_id, w.column_id, w.value::jsonb as value, k.user_value,
        coalesce(k.user_value, case when k.status in ('ready', 'outdated') then k.computed_value end)
            as shown
    from wanted w
    left join cells k on k.collection_id = %(collection_id)s
        and k.row_id = w.row_id and k.column_id = w.column_id
), written as (
    insert into cells as k (row_id, collection_id, column_id, user_value, status)
    select row_id, %(collection_id)s, column_id, value,
        (case when %(computed)s then 'empty' else 'ready' end)::cell_status
    from before
    where user_value is distinct from value
    order by row_id, column_id
    on conflict (collection_id, row_id, column_id) do update
    set user_value = excluded.user_value,
        status = case when %(computed)s then k.status else excluded.status end
)
select row_id, column_id from before where shown is distinct from value;

-- name: clear_values
-- Drop typed values; returns the cells that had one. Index: the key of cells.
update cells k set user_value = null,
    status = case when c.kind is null then 'empty'::cell_status else k.status end
from unnest(%(rows)b::bigint[], %(columns)b::int[]) as g (row_id, column_id)
join columns c using (column_id)
where k.collection_id = %(collection_id)s and k.row_id = g.row_id and k.column_id = g.column_id
    and k.user_value is not null
returning k.row_id, k.column_id;

-- name: set_locked
-- Lock or unlock computed cells.
insert into cells as k (row_id, collection_id, column_id, locked)
select row_id, %(collection_id)s, column_id, %(locked)s
from unnest(%(rows)b::bigint[], %(columns)b::int[]) as g (row_id, column_id)
on conflict (collection_id, row_id, column_id) do update set locked = excluded.locked;

-- name: mark_outdated
-- What was about to be recomputed and now will not be: an answer is no longer the newest (the reason
-- of a *not found* is kept inside, should it prove to be); what never got one keeps saying why.
update cells k set status = 'outdated', reason = jsonb_strip_nulls(
    jsonb_build_object('code', 'input_changed', 'not_found', k.reason))
from unnest(%(rows)b::bigint[], %(columns)b::int[]) as g (row_id, column_id)
where k.collection_id = %(collection_id)s and k.row_id = g.row_id and k.column_id = g.column_id
    and k.status in ('ready', 'not_found');

-- name: delete_rows
-- Rows with their cells and queue entries. Locks: lock_collection.
with queued as (
    delete from queue where collection_id = %(collection_id)s and row_id = any (%(rows)b::bigint[])
), emptied as (
    delete from cells where collection_id = %(collection_id)s and row_id = any (%(rows)b::bigint[])
)
delete from rows where collection_id = %(collection_id)s and row_id = any (%(rows)b::bigint[])
returning row_id;

-- name: read_cells
-- Everything kept about the cells of some rows. Index: the key of cells.
select row_id, column_id, user_value::text, computed_value::text, status::text, locked,
    definition_version, computed_at, reason, provenance
from cells
where collection_id = %(collection_id)s and row_id = any (%(rows)b::bigint[])
order by row_id;

-- name: read_entries
-- Where the unsettled cells of some rows are in the queue. Index: the key of queue.
select q.row_id, q.column_id,
    case
        when q.retry_at is not null then 'retrying'
        when q.seq is null then 'blocked'
        when q.seq <= l.cursor_seq then 'computing'
        else 'queued'
    end,
    q.retry_at
from queue q left join lanes l using (lane_id)
where q.collection_id = %(collection_id)s and q.row_id = any (%(rows)b::bigint[]);

-- name: read_inputs
-- What a computation reads: shown values and statuses of some columns of some rows.
-- Index: the key of cells.
select row_id, column_id, coalesce(user_value, computed_value)::text, status::text,
    user_value is not null, locked, input_hash, computed_value is not null
from cells
where collection_id = %(collection_id)s and row_id = any (%(rows)b::bigint[])
    and column_id = any (%(columns)b::int[]);
