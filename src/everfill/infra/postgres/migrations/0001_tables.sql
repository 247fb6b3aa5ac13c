-- Namespaces, collections, columns, rows and cells: what a person or an agent sees and edits.

create table namespaces (
    namespace_id int generated always as identity primary key,
    name text not null unique check (name <> ''),
    cap_cells int not null check (cap_cells > 0),
    weight float8 not null default 1 check (weight > 0),
    created_at timestamptz not null default now()
);

create table collections (
    collection_id int generated always as identity primary key,
    namespace_id int not null references namespaces,
    name text not null check (name <> ''),
    cap_cells int not null check (cap_cells > 0),
    -- raised with every change of the columns: what a worker knows of the schema is keyed by it
    schema_version int not null default 1,
    -- the last row number given out
    row_tail bigint not null default 0,
    -- what was imported last, and how far: lets a second import of the same input resume
    source jsonb,
    created_at timestamptz not null default now(),
    unique (namespace_id, name)
);

create type cost_class as enum ('instant', 'local', 'remote');

create table columns (
    column_id int generated always as identity primary key,
    collection_id int not null references collections on delete cascade,
    name text not null check (name <> ''),
    position int not null,
    type jsonb not null,
    -- null in an input column; the rest of the definition goes with it
    kind text,
    -- references stand as {{#column_id}}, so that a rename never breaks one
    template text,
    options jsonb not null default '{}',
    cost_class cost_class,
    accepts_missing boolean not null default false,
    schedule text not null default 'on_change' check (schedule in ('on_change', 'never', 'cron')),
    cron text,
    cron_ran_at timestamptz,
    definition_version int not null default 1,
    created_at timestamptz not null default now(),
    unique (collection_id, name),
    check ((kind is null) = (template is null) and (kind is null) = (cost_class is null)),
    check ((schedule = 'cron') = (cron is not null))
);

-- The edges of the DAG: column_id reads upstream_id.
create table column_references (
    column_id int not null references columns on delete cascade,
    upstream_id int not null references columns,
    collection_id int not null references collections on delete cascade,
    primary key (column_id, upstream_id),
    check (column_id <> upstream_id)
);
create index column_references_upstream on column_references (upstream_id);

create table rows (
    collection_id int not null references collections on delete cascade,
    row_id bigint not null,
    -- the row's identity inside what it was imported from
    source_key text,
    primary key (collection_id, row_id)
);
create unique index rows_source_key on rows (collection_id, source_key)
    where source_key is not null;

create type cell_status as enum (
    'empty', 'waiting', 'ready', 'outdated', 'not_found', 'failed'
);

-- The user side of a cell. A value that is absent is SQL null; a value that is null is JSON null.
-- No index but the key, so that every update is a heap-only one.
create table cells (
    row_id bigint not null,
    collection_id int not null,
    column_id int not null,
    user_value jsonb,
    computed_value jsonb,
    status cell_status not null default 'empty',
    locked boolean not null default false,
    -- of the last computed value
    definition_version int,
    computed_at timestamptz,
    input_hash bytea,
    -- why the status is what it is: {code, message, ...}
    reason jsonb,
    -- model, tokens, cost and time of the last computed value
    provenance jsonb,
    primary key (collection_id, row_id, column_id)
) with (
    fillfactor = 85,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_insert_scale_factor = 0.1,
    autovacuum_vacuum_cost_delay = 0
);

-- Who changed what, in words a person reads back.
create table changes (
    change_id bigint generated always as identity primary key,
    collection_id int not null references collections on delete cascade,
    author text not null,
    action text not null,
    detail jsonb not null default '{}',
    changed_at timestamptz not null default now()
);
create index changes_collection on changes (collection_id, change_id);
