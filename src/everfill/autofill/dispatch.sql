-- Bulk runs: their record, and how far their cells have been signalled.

-- name: start_run
insert into runs (collection_id, author, reason, column_ids, only_status, forced, row_ids,
    next_row_id, last_row_id, weight)
values (%(collection_id)s, %(author)s, %(reason)s, %(columns)b::int[], %(only)s, %(forced)s,
    %(rows)b::bigint[], 1, %(last_row_id)s, %(weight)s)
returning run_id;

-- name: lock_run
-- The part of a run that is left to signal. Locks: the run's row, after lock_collection.
select collection_id, column_ids, only_status, forced, next_row_id, last_row_id,
    row_ids is not null
from runs
where run_id = %(run_id)s and dispatched_at is null and cancelled_at is null
for update;

-- name: run_rows
-- The next rows of a run over a range that exist. Index: rows' key.
select row_id from rows
where collection_id = %(collection_id)s and row_id between %(from)s and %(to)s
order by row_id limit %(count_max)s;

-- name: run_named_rows
-- The same for a run that names its rows: reads those, whatever lies between. Index: rows' key.
select r.row_id
from runs u
cross join lateral unnest(u.row_ids) as n (row_id)
join rows r on r.collection_id = u.collection_id and r.row_id = n.row_id
where u.run_id = %(run_id)s and n.row_id between %(from)s and %(to)s
order by r.row_id limit %(count_max)s;

-- name: advance_run
update runs set next_row_id = %(next_row_id)s, cells_signalled = cells_signalled + %(cells)s,
    touched_at = now(), dispatched_at = case when %(done)s then now() end
where run_id = %(run_id)s;

-- name: stalled_runs
-- Runs whose dispatcher has gone: nothing was signalled for a while, or last by a clock that was
-- ahead. Index: runs_undispatched.
select run_id from runs
where dispatched_at is null and cancelled_at is null
    and (touched_at < now() - %(idle_seconds)s * interval '1 second'
        or touched_at > now() + %(future_seconds)s * interval '1 second')
order by run_id;

-- name: undispatched_runs
-- Index: runs_undispatched.
select run_id from runs
where collection_id = %(collection_id)s and dispatched_at is null and cancelled_at is null
order by run_id;

-- name: cancel_run
-- Take what only this run wanted and nobody started out of the queue. An answer whose upstream the
-- run has recomputed, or is computing, is outdated by that. Returns the number of cells, and those
-- that waited for one of them, for `release`.
-- Locks: lock_collection, lock_claims.
with recursive cancelled as (
    update runs set cancelled_at = now() where run_id = %(run_id)s
), going_on as (
    update lanes set paused = false where run_id = %(run_id)s and paused
), planned as (
    select unnest(column_ids) as column_id from runs where run_id = %(run_id)s
    union
    select e.column_id from column_references e join planned p on e.upstream_id = p.column_id
), withdrawn as (
    delete from queue q using lanes l
    where l.run_id = %(run_id)s and q.lane_id = l.lane_id and q.signal = 1
        and (q.seq is null or q.seq > l.cursor_seq)
    returning q.collection_id, q.row_id, q.column_id
), outdated as (
    update cells k set status = 'outdated', reason = jsonb_strip_nulls(
        jsonb_build_object('code', 'input_changed', 'not_found', k.reason))
    from withdrawn w
    where k.collection_id = w.collection_id and k.row_id = w.row_id and k.column_id = w.column_id
        and k.status in ('ready', 'not_found')
        and exists (
            select from column_references e join planned p on p.column_id = e.upstream_id
            where e.column_id = w.column_id and not exists (
                select from withdrawn v
                where v.row_id = w.row_id and v.column_id = e.upstream_id
            )
        )
), stuck as (
    select distinct d.row_id, d.column_id
    from withdrawn w
    join column_references e on e.upstream_id = w.column_id
    join queue d on d.collection_id = w.collection_id and d.row_id = w.row_id
        and d.column_id = e.column_id and d.seq is null and d.retry_at is null
    where not exists (
        select from withdrawn v where v.row_id = d.row_id and v.column_id = d.column_id
    )
)
select (select count(*) from withdrawn), coalesce(array_agg(row_id), '{}'),
    coalesce(array_agg(column_id), '{}')
from stuck;

-- name: set_paused
-- Locks: lock_claims, because only claims write lanes.
update lanes set paused = %(paused)s where run_id = %(run_id)s;

-- name: list_runs
-- The runs of a collection, newest first.
select run_id, author, reason, column_ids, only_status, forced, cells_signalled, started_at,
    dispatched_at, cancelled_at
from runs where collection_id = %(collection_id)s order by run_id desc limit %(count_max)s;

-- name: run_collection
select collection_id from runs
where run_id = %(run_id)s and dispatched_at is null and cancelled_at is null;
