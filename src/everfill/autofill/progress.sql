-- Progress, counted from what is: always exact, and the same after any crash.

-- name: count_cells
-- Settled cells of the computed columns by status. Index: the key of cells, by collection.
select k.column_id,
    case
        when k.user_value is not null then 'ready'
        when k.status <> 'empty' and k.definition_version <> c.definition_version then 'outdated'
        else k.status::text
    end as status,
    count(*)
from cells k join columns c using (column_id)
where k.collection_id = %(collection_id)s and c.kind is not null and not exists (
    select from queue q
    where q.collection_id = k.collection_id and q.row_id = k.row_id and q.column_id = k.column_id
)
group by 1, 2;

-- name: count_entries
-- Unsettled cells by what they wait for. Index: the key of queue, by collection.
select q.column_id,
    case
        when q.retry_at is not null then 'retrying'
        when q.seq is null then 'blocked'
        when q.seq <= l.cursor_seq then 'computing'
        else 'queued'
    end as state,
    count(*)
from queue q left join lanes l using (lane_id)
where q.collection_id = %(collection_id)s
group by 1, 2;

-- name: count_rows
select count(*) from rows where collection_id = %(collection_id)s;

-- name: spent
-- Everything spent on a collection, rolled up or not.
select coalesce(sum(calls), 0)::bigint, coalesce(sum(input_tokens), 0)::bigint,
    coalesce(sum(output_tokens), 0)::bigint, coalesce(sum(cost_usd), 0)::float8
from (
    select calls, input_tokens, output_tokens, cost_usd from usage
    where collection_id = %(collection_id)s
    union all
    select calls, input_tokens, output_tokens, cost_usd from usage_totals
    where collection_id = %(collection_id)s
) u;

-- name: failures
-- Failed cells of some columns (and rows) by column and code, with one message each.
select k.column_id, coalesce(k.reason ->> 'code', 'unknown'), count(*), min(k.reason ->> 'message')
from cells k
where k.collection_id = %(collection_id)s and k.status = 'failed' and k.user_value is null
    and k.column_id = any (%(columns)b::int[])
    and (%(rows)b::bigint[] is null or k.row_id = any (%(rows)b::bigint[]))
group by 1, 2 order by 3 desc;

-- name: waits
-- Waiting cells of some columns (and rows) by column, code and the column they wait for.
select k.column_id, coalesce(k.reason ->> 'code', 'unknown'), k.reason ->> 'column', count(*)
from cells k
where k.collection_id = %(collection_id)s and k.status = 'waiting' and k.user_value is null
    and k.column_id = any (%(columns)b::int[])
    and (%(rows)b::bigint[] is null or k.row_id = any (%(rows)b::bigint[]))
group by 1, 2, 3 order by 4 desc;
