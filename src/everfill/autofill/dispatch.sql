-- Bulk runs: their record, and how far their cells have been signalled.

-- name: start_run
insert into runs (collection_id, author, reason, column_ids, only_status, forced, row_ids,
    next_row_id, last_row_id, weight)
values (%(collection_id)s, %(author)s, %(reason)s, %(columns)b::int[], %(only)s, %(forced)s,
    %(rows)b::bigint[], 1, %(last_row_id)s, %(weight)s)
returning run_id;

-- name: lock_run
-- The part of a run that is left to signal. Locks: the run's row, after lock_collection.
select collection_id, column_ids, only_status, forced, next_row_id, last_row_id
from runs
where run_id = %(run_id)s and dispatched_at is null and cancelled_at is null
for update;

-- name: run_rows
-- The next rows of a run that exist. Index: rows' key.
select r.row_id
from rows r
where r.collection_id = %(collection_id)s and r.row_id between %(from)s and %(to)s
    and (
        not exists (select from runs u where u.run_id = %(run_id)s and u.row_ids is not null)
        or r.row_id = any ((select u.row_ids from runs u where u.run_id = %(run_id)s)::bigint[])
    )
order by r.row_id limit %(count_max)s;

-- name: advance_run
update runs set next_row_id = %(next_row_id)s, cells_signalled = cells_signalled + %(cells)s,
    touched_at = now(), dispatched_at = case when %(done)s then now() end
where run_id = %(run_id)s;

-- name: stalled_runs
-- Runs whose dispatcher has gone: nothing was signalled for a while. Index: runs_undispatched.
select run_id from runs
where dispatched_at is null and cancelled_at is null
    and touched_at < now() - %(idle_seconds)s * interval '1 second'
order by run_id;

-- name: cancel_run
-- Locks: lock_collection.
with cancelled as (
    update runs set cancelled_at = now() where run_id = %(run_id)s returning run_id
)
delete from queue q using lanes l
where l.run_id = %(run_id)s and q.lane_id = l.lane_id and (q.seq is null or q.seq > l.cursor_seq);

-- name: set_paused
update lanes set paused = %(paused)s where run_id = %(run_id)s;

-- name: list_runs
-- The runs of a collection, newest first.
select run_id, author, reason, column_ids, only_status, forced, cells_signalled, started_at,
    dispatched_at, cancelled_at
from runs where collection_id = %(collection_id)s order by run_id desc limit %(count_max)s;

-- name: run_collection
select collection_id from runs
where run_id = %(run_id)s and dispatched_at is null and cancelled_at is null;
