-- What the benchmark of edits looks at.

-- name: is_claimed
-- Whether a queued cell's number was passed. Index: the key of queue.
select q.seq <= l.cursor_seq from queue q join lanes l using (lane_id)
where q.collection_id = %(collection_id)s and q.row_id = %(row_id)s
    and q.column_id = %(column_id)s and q.seq is not null;

-- name: in_flight
-- Cells in flight, by collection.
select collection_id, sum(n)::int from claims group by collection_id;
