-- What the janitor looks for besides the queue itself, and the roll-up of usage.

-- name: active_collections
-- Collections that are not idle. Steps from one to the next through the index, so that neither idle
-- collections nor the depth of the queue cost anything. Index: the key of queue, runs_undispatched.
with recursive active as (
    (select collection_id from queue order by collection_id limit 1)
    union all
    select (
        select q.collection_id from queue q
        where q.collection_id > a.collection_id order by q.collection_id limit 1
    )
    from active a where a.collection_id is not null
)
select collection_id from active where collection_id is not null
union
select collection_id from runs where dispatched_at is null and cancelled_at is null
order by collection_id;

-- name: cron_columns
-- Columns that recompute by the clock: the due time that was last dispatched (at first, when the
-- column came to be or got this expression), and the time.
select collection_id, column_id, cron, coalesce(cron_ran_at, created_at),
    coalesce(%(now)s::timestamptz, now())
from columns where schedule = 'cron' order by collection_id, column_id;

-- name: mark_cron
-- One janitor wins a due time: the others see that it moved on, as does one that looked before the
-- column was redefined. Returns the columns that were won. Locks: the columns, by id.
with due as (
    select * from unnest(
        %(columns)b::int[], %(crons)b::text[], %(seen)b::timestamptz[], %(due)b::timestamptz[]
    ) as d (column_id, cron, seen_at, due_at)
), won as materialized (
    select c.column_id, d.due_at
    from columns c join due d using (column_id)
    where c.cron = d.cron and coalesce(c.cron_ran_at, c.created_at) = d.seen_at
    order by c.column_id for update of c
)
update columns c set cron_ran_at = won.due_at
from won where c.column_id = won.column_id
returning c.column_id;

-- name: roll_up_usage
-- Usage rows become totals, once.
with spent as (
    delete from usage where collection_id = %(collection_id)s
    returning column_id, calls, input_tokens, output_tokens, cost_usd
)
insert into usage_totals as t (collection_id, column_id, calls, input_tokens, output_tokens, cost_usd)
select %(collection_id)s, column_id, sum(calls), sum(input_tokens), sum(output_tokens), sum(cost_usd)
from spent group by column_id order by column_id
on conflict (collection_id, column_id) do update
set calls = t.calls + excluded.calls, input_tokens = t.input_tokens + excluded.input_tokens,
    output_tokens = t.output_tokens + excluded.output_tokens,
    cost_usd = t.cost_usd + excluded.cost_usd;
