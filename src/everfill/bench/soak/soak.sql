-- What a soak looks at.

-- name: backlog
-- Cells that are asked for and not done.
select count(*) from queue;

-- name: is_waiting
-- Whether a cell waits for a worker: it is queued, and its number was not passed. Index: the key of
-- queue.
select exists (
    select from queue q join lanes l using (lane_id)
    where q.collection_id = %(collection_id)s and q.row_id = %(row_id)s
        and q.column_id = %(column_id)s and (q.seq is null or q.seq > l.cursor_seq)
);

-- name: relations
-- Bytes of each table with its indexes and its overflow, and versions that vacuum has still to take.
select relname, pg_total_relation_size(relid), n_dead_tup
from pg_stat_user_tables where schemaname = 'everfill' order by relname;
