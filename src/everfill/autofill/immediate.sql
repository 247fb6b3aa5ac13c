-- Filling pure columns of new rows inside the transaction that dispatches them.

-- name: known_rows
-- Which of the rows have an entry, or something stored, in these columns.
-- Index: the keys of queue and cells.
select row_id from queue
where collection_id = %(collection_id)s and row_id = any (%(rows)b::bigint[])
    and column_id = any (%(columns)b::int[])
union
select row_id from cells
where collection_id = %(collection_id)s and row_id = any (%(rows)b::bigint[])
    and column_id = any (%(columns)b::int[]);

-- name: copy_answers_in
-- Answers of cells that nothing was stored of and nobody waits for: signalled, claimed and settled
-- in one step. 'now' is when the transaction began. Locks: lock_collection.
copy cells (row_id, collection_id, column_id, computed_value, status, definition_version,
    computed_at, input_hash) from stdin;
