-- The queue side. An entry exists exactly while its cell is unsettled; docs/adr says why.

-- A bulk run: one press of a button over many cells, dispatched chunk by chunk from next_row_id.
create table runs (
    run_id int generated always as identity primary key,
    collection_id int not null references collections on delete cascade,
    author text not null,
    reason text not null,
    column_ids int[] not null,
    only_status text,
    forced boolean not null default false,
    -- these rows only; null: every row of the range
    row_ids bigint[],
    next_row_id bigint not null default 1,
    last_row_id bigint not null,
    cells_signalled bigint not null default 0,
    weight float8 not null default 1 check (weight > 0),
    started_at timestamptz not null default now(),
    touched_at timestamptz not null default now(),
    dispatched_at timestamptz,
    cancelled_at timestamptz
);
create index runs_undispatched on runs (collection_id)
    where dispatched_at is null and cancelled_at is null;

-- A lane is a stream of entries of one collection, one run (none: interactive) and one cost class.
-- Only claims write it; they are serialised. A lane without work is removed.
create table lanes (
    lane_id int generated always as identity primary key,
    collection_id int not null references collections on delete cascade,
    namespace_id int not null references namespaces,
    run_id int references runs on delete cascade,
    cost_class cost_class not null,
    weight float8 not null default 1 check (weight > 0),
    paused boolean not null default false,
    -- every number up to the cursor is claimed or settled
    cursor_seq bigint not null default 0,
    vtime float8 not null default 0,
    unique nulls not distinct (collection_id, run_id, cost_class)
) with (fillfactor = 20, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0);

-- The last number given out in a lane. Apart from `lanes`, so that enqueuing never blocks a claim.
create table lane_tails (
    lane_id int primary key references lanes on delete cascade,
    tail_seq bigint not null default 0
) with (fillfactor = 20, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0);

-- Virtual time of each class of lanes: a lane that comes back starts here, not in the past.
create table lane_clocks (
    cost_class cost_class not null,
    interactive boolean not null,
    vtime float8 not null default 0,
    primary key (cost_class, interactive)
) with (fillfactor = 20, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0);
insert into lane_clocks (cost_class, interactive)
select c, i from unnest(enum_range(null::cost_class)) c, unnest(array[true, false]) i;

-- seq set: queued, or computing where a claim has passed it. seq null: blocked, or retrying where
-- retry_at is set.
create table queue (
    row_id bigint not null,
    collection_id int not null,
    column_id int not null,
    seq bigint,
    lane_id int not null,
    -- raised by every signal: a result computed under a smaller number is not the newest
    signal int not null default 1,
    rounds smallint not null default 0,
    tries smallint not null default 0,
    forced boolean not null default false,
    interactive boolean not null default false,
    retry_at timestamptz,
    primary key (collection_id, row_id, column_id),
    check (seq is null or retry_at is null)
) with (
    fillfactor = 85,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_insert_scale_factor = 0.1,
    autovacuum_vacuum_cost_delay = 0
);
create unique index queue_place on queue (lane_id, seq);
create index queue_retry on queue (retry_at) where retry_at is not null;

-- What a worker holds: a range of numbers of one lane. n counts the cells not yet finalized.
create table claims (
    claim_id bigint generated always as identity primary key,
    lane_id int not null,
    collection_id int not null,
    namespace_id int not null,
    seq_from bigint not null,
    seq_to bigint not null,
    n int not null check (n > 0),
    worker text not null,
    claimed_at timestamptz not null default now(),
    lease_until timestamptz not null
) with (fillfactor = 50, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0);

-- What was spent, by finalize; the setup workflow rolls it up into usage_totals.
create table usage (
    usage_id bigint generated always as identity primary key,
    collection_id int not null references collections on delete cascade,
    column_id int not null,
    calls int not null,
    input_tokens bigint not null,
    output_tokens bigint not null,
    cost_usd float8 not null,
    spent_at timestamptz not null default now()
);
create index usage_collection on usage (collection_id);
create table usage_totals (
    collection_id int not null references collections on delete cascade,
    column_id int not null,
    calls bigint not null,
    input_tokens bigint not null,
    output_tokens bigint not null,
    cost_usd float8 not null,
    primary key (collection_id, column_id)
);
