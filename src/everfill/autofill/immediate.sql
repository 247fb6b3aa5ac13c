-- Filling pure columns of new rows inside the transaction that dispatches them.

-- name: unsettled_rows
-- Which of the rows have an entry. Index: the key of queue.
select distinct row_id from queue
where collection_id = %(collection_id)s and row_id = any (%(rows)b::bigint[]);

-- name: land
-- Answers of cells that nothing was stored of and nobody waits for: signalled, claimed and settled
-- in one step. Locks: lock_collection.
insert into cells (row_id, collection_id, column_id, computed_value, status, definition_version,
    computed_at, input_hash)
select row_id, %(collection_id)s, column_id, value::jsonb, 'ready', version, now(), input_hash
from unnest(
    %(rows)s::bigint[], %(columns)s::int[], %(versions)s::int[], %(values)b::text[],
    %(hashes)b::bytea[]
) as r (row_id, column_id, version, value, input_hash);
