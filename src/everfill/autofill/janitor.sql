-- What the janitor looks for besides the queue itself, and the roll-up of usage.

-- name: active_collections
-- Collections that are not idle. Index: the key of queue, runs_undispatched.
select collection_id from collections c
where exists (select from queue q where q.collection_id = c.collection_id)
    or exists (
        select from runs r
        where r.collection_id = c.collection_id
            and r.dispatched_at is null and r.cancelled_at is null
    )
order by collection_id;

-- name: cron_columns
-- Columns that recompute by the clock, and when they last did.
select c.collection_id, c.column_id, c.cron, coalesce(c.cron_ran_at, c.created_at)
from columns c where c.schedule = 'cron';

-- name: mark_cron
-- One janitor wins a due time: the others see that it moved on.
update columns set cron_ran_at = %(due_at)s
where column_id = %(column_id)s and coalesce(cron_ran_at, created_at) = %(seen_at)s;

-- name: roll_up_usage
-- Usage rows become totals, once.
with spent as (
    delete from usage where collection_id = %(collection_id)s
    returning column_id, calls, input_tokens, output_tokens, cost_usd
)
insert into usage_totals as t (collection_id, column_id, calls, input_tokens, output_tokens, cost_usd)
select %(collection_id)s, column_id, sum(calls), sum(input_tokens), sum(output_tokens), sum(cost_usd)
from spent group by column_id
on conflict (collection_id, column_id) do update
set calls = t.calls + excluded.calls, input_tokens = t.input_tokens + excluded.input_tokens,
    output_tokens = t.output_tokens + excluded.output_tokens,
    cost_usd = t.cost_usd + excluded.cost_usd;
