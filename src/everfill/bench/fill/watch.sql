-- What somebody else sees of a fill that runs.

-- name: any_answer
-- Whether one computed cell can be seen.
select exists (select from cells where computed_value is not null);

-- name: answers
-- How many computed cells can be seen.
select count(*) from cells where computed_value is not null;

-- name: answer
-- One computed cell's value. Index: the key of cells.
select computed_value #>> '{}' from cells
where collection_id = %(collection_id)s and row_id = %(row_id)s and column_id = %(column_id)s;
