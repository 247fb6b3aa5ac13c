-- The queue: signal, claim, finalize, and what keeps it whole.
--
-- Locks, in this order: the collection's advisory lock (every statement that writes `queue` or
-- `lane_tails`), then `cells`, then rows of `claims` by number (a worker's renewal locks nothing but
-- those, so that whoever locks several takes them in one order). Claims are serialised by an advisory
-- lock of their own and write only `lanes`, `lane_clocks` and new `claims`: they never wait for the
-- statements above.

-- name: lock_collection
-- One writer of the queue at a time in a collection: commit order is number order, no upstream is
-- missed by two finalizes at once, and no two writers can deadlock.
select pg_advisory_xact_lock(4611686018427387904 + %(collection_id)s::bigint);

-- name: lock_claims
-- Claims are serialised, which makes the caps strict. Held for about a millisecond.
select pg_advisory_xact_lock(4611686018427387903);

-- name: ensure_lanes
-- The lanes of one run (none: interactive), made where they are missing. Index: lanes' unique key.
with wanted as (
    select distinct unnest(%(cost_classes)b::text[])::cost_class as cost_class
), made as (
    insert into lanes (collection_id, namespace_id, run_id, cost_class, weight)
    select c.collection_id, c.namespace_id, %(run_id)s::int, w.cost_class,
        coalesce((select r.weight from runs r where r.run_id = %(run_id)s::int), 1)
    from collections c cross join wanted w
    where c.collection_id = %(collection_id)s
    order by w.cost_class
    on conflict (collection_id, run_id, cost_class) do nothing
    returning lane_id, cost_class
), tails as (
    insert into lane_tails (lane_id) select lane_id from made
)
select cost_class::text, lane_id from made
union all
select l.cost_class::text, l.lane_id
from lanes l join wanted w using (cost_class)
where l.collection_id = %(collection_id)s and l.run_id is not distinct from %(run_id)s::int;

-- name: signal
-- Signal the given columns of the given rows: explicit ones (where they have the status asked for),
-- and in the same row whatever depends on one of those.
-- A settled cell enters the queue (blocked while an upstream is unsettled); a queued one stays, or
-- moves to the interactive lane, or becomes blocked; a computing one only counts the signal. A cell
-- that a person typed over or locked is not computed: what it hides is marked outdated, unless a call
-- for it is under way (the reset signals it again).
-- Locks: lock_collection. Index: the keys of cells and queue.
with recursive ancestry (column_id, upstream_id) as (
    select e.column_id, e.upstream_id from column_references e
    where e.column_id = any (%(columns)b::int[])
    union
    select a.column_id, e.upstream_id
    from ancestry a join column_references e on e.column_id = a.upstream_id
), chosen as materialized (
    select c.*, coalesce((
        select array_agg(a.upstream_id) from ancestry a where a.column_id = c.column_id
    ), '{}') as ancestors, coalesce((
        select array_agg(e.upstream_id)
        from column_references e join columns u on u.column_id = e.upstream_id
        where e.column_id = c.column_id and u.kind is not null
    ), '{}') as upstreams, d.definition_version
    from unnest(
        %(columns)b::int[], %(lanes)b::int[], %(forced)b::boolean[], %(explicit)b::boolean[]
    ) with ordinality as c (column_id, lane_id, forced, explicit, place)
    join columns d using (column_id)
), product as materialized (
    select r.row_id, c.column_id, c.upstreams, c.ancestors, c.explicit, c.place,
        c.forced, coalesce(q.forced, false) as was_forced,
        k.user_value is not null or coalesce(k.locked, false) as pinned,
        q.column_id is not null as unsettled,
        q.seq, q.signal, q.rounds, q.tries,
        q.seq is not null and q.seq <= l.cursor_seq as computing,
        %(interactive)s or coalesce(q.interactive, false) as interactive,
        coalesce(q.interactive, false) or not %(interactive)s as lane_stays,
        case when q.interactive then q.lane_id else c.lane_id end as lane_id,
        q.lane_id as old_lane_id,
        case
            when not c.explicit then false
            when %(only)s::text is null then true
            when %(only)s = 'unsettled' then q.column_id is not null
            when q.column_id is not null then false
            when %(only)s = 'empty' then k.status is null or k.status = 'empty'
            when %(only)s = 'outdated' then k.status = 'outdated'
                or k.definition_version <> c.definition_version
            when %(only)s = 'unfinished' then k.status is null
                or k.status in ('empty', 'waiting', 'outdated', 'failed')
                or k.definition_version <> c.definition_version
            else k.status::text = %(only)s
        end as asked
    from unnest(%(rows)b::bigint[]) as r (row_id)
    cross join chosen c
    left join cells k on k.collection_id = %(collection_id)s
        and k.row_id = r.row_id and k.column_id = c.column_id
    left join queue q on q.collection_id = %(collection_id)s
        and q.row_id = r.row_id and q.column_id = c.column_id
    left join lanes l on l.lane_id = q.lane_id
), hit as materialized (
    select * from (
        select p.*, array_agg(column_id) filter (where asked) over (partition by row_id) as asked_for
        from product p
    ) p
    where asked or ancestors && asked_for
), target as materialized (
    select h.*, asked and forced or was_forced as force,
        array_agg(column_id) over (partition by row_id) as row_columns
    from hit h where not pinned
), hidden as (
    update cells k set status = 'outdated', reason = jsonb_strip_nulls(
        jsonb_build_object('code', 'input_changed', 'not_found', k.reason))
    from hit h
    where h.pinned and not h.unsettled and k.collection_id = %(collection_id)s
        and k.row_id = h.row_id and k.column_id = h.column_id
        and k.status in ('ready', 'not_found')
), moved as materialized (
    select t.*, case
            when computing then 'keep'
            when upstreams && row_columns then 'block'
            when upstreams <> '{}' and exists (
                select from queue u
                where u.collection_id = %(collection_id)s and u.row_id = t.row_id
                    and u.column_id = any (t.upstreams)
            ) then 'block'
            when seq is not null and lane_stays then 'keep'
            else 'enqueue'
        end as move
    from target t
), numbered as materialized (
    select m.*, row_number() over (partition by lane_id, move order by row_id, place) as n
    from moved m
), written as (
    insert into queue (row_id, collection_id, column_id, seq, lane_id, signal, rounds, tries,
        forced, interactive)
    select n.row_id, %(collection_id)s, n.column_id,
        case n.move when 'enqueue' then t.tail_seq + n.n when 'keep' then n.seq end,
        case n.move when 'keep' then n.old_lane_id else n.lane_id end,
        coalesce(n.signal, 0) + 1, coalesce(n.rounds, 0),
        case when n.computing then n.tries else 0 end,
        n.force, n.interactive
    from numbered n join lane_tails t on t.lane_id = n.lane_id
    order by n.row_id, n.column_id
    on conflict (collection_id, row_id, column_id) do update
    set seq = excluded.seq, lane_id = excluded.lane_id, signal = excluded.signal,
        tries = excluded.tries, forced = excluded.forced, interactive = excluded.interactive,
        retry_at = null
), grown as (
    select lane_id, count(*) as n from numbered where move = 'enqueue' group by lane_id
), tails as (
    update lane_tails t set tail_seq = t.tail_seq + g.n from grown g where t.lane_id = g.lane_id
)
select
    (select count(*) from target) as cells,
    exists (
        select from grown g join lane_tails t using (lane_id) join lanes l using (lane_id)
        where l.cursor_seq >= t.tail_seq
    ) as woken;

-- name: claim
-- Take cells from the lanes that are furthest behind, within every cap, and lease them to a worker.
-- In each cost class: interactive lanes first, then the least virtual time. The cells themselves are
-- not written: computing is "its number lies in a claim". Cost does not grow with the depth.
-- Locks: lock_claims. Index: queue_place, from each lane's cursor.
with capacity as (
    select * from unnest(
        %(cost_classes)b::text[]::cost_class[], %(interactive_max)b::int[], %(bulk_max)b::int[],
        %(total_max)b::int[]
    ) as c (cost_class, interactive_max, bulk_max, total_max)
    where total_max > 0
), flight as materialized (
    select namespace_id, collection_id, sum(n)::int as n from claims group by 1, 2
), active as materialized (
    select l.*, l.run_id is null as interactive, t.tail_seq,
        greatest(l.vtime, k.vtime) as start_vtime,
        sum(l.weight) over (partition by l.namespace_id, l.cost_class, l.run_id is null) as rivals
    from lanes l join lane_tails t using (lane_id)
    join lane_clocks k on k.cost_class = l.cost_class and k.interactive = (l.run_id is null)
    where l.cursor_seq < t.tail_seq and not l.paused
), roomy as materialized (
    select a.*, c.interactive_max, c.bulk_max, c.total_max, s.weight as namespace_weight,
        case when a.interactive then o.cap_cells
            else greatest(1, floor(o.cap_cells * %(bulk_share)s)) end
            - coalesce((select sum(f.n) from flight f where f.collection_id = a.collection_id), 0)
            as collection_room,
        case when a.interactive then s.cap_cells
            else greatest(1, floor(s.cap_cells * %(bulk_share)s)) end
            - coalesce((select sum(f.n) from flight f where f.namespace_id = a.namespace_id), 0)
            as namespace_room
    from active a
    join capacity c using (cost_class)
    join collections o using (collection_id)
    join namespaces s on s.namespace_id = a.namespace_id
), nearest as materialized (
    select * from (
        select r.*, row_number() over (
            partition by cost_class, interactive order by start_vtime, lane_id
        ) as place
        from roomy r where collection_room > 0 and namespace_room > 0
    ) r
    where place <= %(lanes_max)s
), want as (
    select *, least(tail_seq - cursor_seq,
        case when interactive then interactive_max else bulk_max end, total_max) as k0
    from nearest
), by_kind as (
    select *, greatest(0, least(k0, case when interactive then interactive_max else bulk_max end
        - (sum(k0) over w - k0))) as k1
    from want
    window w as (partition by cost_class, interactive order by start_vtime, lane_id)
), by_collection as (
    select *, greatest(0, least(k1, collection_room - (sum(k1) over w - k1))) as k2
    from by_kind
    window w as (partition by collection_id order by interactive desc, start_vtime, lane_id)
), by_namespace as (
    select *, greatest(0, least(k2, namespace_room - (sum(k2) over w - k2))) as k3
    from by_collection
    window w as (partition by namespace_id order by interactive desc, start_vtime, lane_id)
), share as materialized (
    select *, greatest(0, least(k3, total_max - (sum(k3) over w - k3)))::int as k
    from by_namespace
    window w as (partition by cost_class order by interactive desc, start_vtime, lane_id)
), pick as materialized (
    select s.lane_id, s.collection_id, s.namespace_id, s.cost_class, s.interactive, q.*
    from share s cross join lateral (
        select q.row_id, q.column_id, q.seq, q.signal, q.forced, q.tries
        from queue q
        where q.lane_id = s.lane_id and q.seq > s.cursor_seq
        order by q.seq limit s.k
    ) q
    where s.k > 0
), got as materialized (
    select lane_id, collection_id, namespace_id, count(*)::int as n, max(seq) as seq_to
    from pick group by 1, 2, 3
), made as (
    insert into claims (lane_id, collection_id, namespace_id, seq_from, seq_to, n, worker,
        claimed_at, lease_until)
    select g.lane_id, g.collection_id, g.namespace_id, s.cursor_seq + 1, g.seq_to, g.n, %(worker)s,
        coalesce(%(now)s, now()), coalesce(%(now)s, now()) + %(lease_seconds)s * interval '1 second'
    from got g join share s using (lane_id)
    returning claim_id, lane_id
), passed as (
    update lanes l
    set cursor_seq = case when coalesce(g.n, 0) < s.k then s.tail_seq else g.seq_to end,
        vtime = s.start_vtime + coalesce(g.n, 0) * s.rivals / (s.weight * s.namespace_weight)
    from share s left join got g using (lane_id)
    where l.lane_id = s.lane_id and s.k > 0
), ticked as (
    update lane_clocks c set vtime = v.vtime
    from (
        select cost_class, interactive, min(start_vtime) as vtime
        from share where k > 0 group by 1, 2
    ) v
    where c.cost_class = v.cost_class and c.interactive = v.interactive and c.vtime < v.vtime
)
select m.claim_id, p.collection_id, p.lane_id, p.cost_class::text, p.interactive,
    p.row_id, p.column_id, p.seq, p.signal, p.forced, p.tries
from pick p join made m using (lane_id)
order by p.interactive desc, m.claim_id, p.seq;

-- name: finalize
-- Bring the results of claimed cells home. A result lands where its lane and number still stand
-- (compare-and-swap) and its definition is the present one. Signalled meanwhile: computed again, at
-- most rounds_max times (a round that called nothing is free), then it lands as outdated. Failed in
-- passing: retried later, at most tries_max times. What lands leaves the queue; what is computed
-- again is left blocked, and `release` gives it its place. Ended claims go; of the others n counts down, never to nothing, so
-- that a finalize repeated after a lost connection cannot end a claim that is still held.
-- Tells what is not as it nearly always is: the verdicts other than settle, and, where a result had
-- lost its claim, which ones settled; and which of the columns have dependents.
-- Locks: lock_collection (so an entry's ctid stands), the claims by number. Index: queue_place, the
-- key of cells.
with result as materialized (
    select * from unnest(
        %(claims)s::bigint[], %(rows)s::bigint[], %(columns)s::int[], %(lanes)s::int[],
        %(seqs)s::bigint[], %(signals)s::int[], %(versions)s::int[], %(outcomes)s::text[],
        %(values)b::text[], %(reasons)b::text[], %(provenances)b::text[], %(hashes)b::bytea[],
        %(delays)s::float8[]
    ) as r (claim_id, row_id, column_id, lane_id, seq, signal, version, outcome, value, reason,
        provenance, input_hash, delay_seconds)
), judged as materialized (
    select r.*, q.ctid as entry, q.signal <> r.signal as dirty, case
            when r.version >= 0 and c.definition_version <> r.version then 'stale'
            when q.signal <> r.signal and (r.outcome in ('waiting', 'outdated')
                or q.rounds + 1 < %(rounds_max)s) then 'again'
            when r.outcome = 'retry' and q.signal = r.signal and q.tries + 1 < %(tries_max)s
                then 'retry'
            else 'settle'
        end as verdict
    from result r
    join queue q on q.collection_id = %(collection_id)s and q.row_id = r.row_id
        and q.column_id = r.column_id and q.lane_id = r.lane_id and q.seq = r.seq
    join columns c on c.column_id = r.column_id
), settled as (
    delete from queue q using judged j where q.ctid = j.entry and j.verdict = 'settle'
), kept as (
    update queue q set seq = null,
        rounds = q.rounds + (j.verdict = 'again'
            and j.outcome not in ('waiting', 'outdated'))::int::smallint,
        tries = case j.verdict when 'retry' then q.tries + 1 else 0 end,
        retry_at = case j.verdict when 'retry'
            then coalesce(%(now)s, now()) + j.delay_seconds * interval '1 second' end
    from judged j where q.ctid = j.entry and j.verdict <> 'settle'
), answered as (
    insert into cells as k (row_id, collection_id, column_id, computed_value, status,
        definition_version, computed_at, input_hash, reason, provenance)
    select row_id, %(collection_id)s, column_id, value::jsonb,
        case when dirty then 'outdated' when outcome = 'ready' then 'ready' else 'not_found'
            end::cell_status,
        version, coalesce(%(now)s, now()), input_hash,
        case when dirty then jsonb_strip_nulls(
            jsonb_build_object('code', 'rounds_exhausted', 'not_found', reason::jsonb))
            else reason::jsonb end,
        provenance::jsonb
    from judged where verdict = 'settle' and outcome in ('ready', 'not_found')
    on conflict (collection_id, row_id, column_id) do update
    set computed_value = excluded.computed_value, status = excluded.status,
        definition_version = excluded.definition_version, computed_at = excluded.computed_at,
        input_hash = excluded.input_hash, reason = excluded.reason,
        provenance = excluded.provenance
), told as (
    insert into cells as k (row_id, collection_id, column_id, status, definition_version, reason)
    select row_id, %(collection_id)s, column_id,
        case
            when outcome = 'retry' then 'failed'
            when outcome = 'unchanged' and dirty then 'outdated'
            when outcome = 'unchanged' then 'ready'
            else outcome
        end::cell_status,
        nullif(version, -1),
        case when outcome = 'unchanged' and dirty then '{"code": "rounds_exhausted"}'::jsonb
            else reason::jsonb end
    from judged
    where verdict = 'retry' or (verdict = 'settle' and outcome not in ('ready', 'not_found'))
    on conflict (collection_id, row_id, column_id) do update
    set status = case
            when excluded.status = 'ready' and k.computed_value is null then 'not_found'
            when excluded.status = 'outdated' and excluded.reason ->> 'code' = 'input_changed'
                and k.status not in ('ready', 'not_found') then k.status
            else excluded.status
        end,
        definition_version = coalesce(excluded.definition_version, k.definition_version),
        reason = case
            when excluded.status = 'ready' and k.computed_value is null
                then coalesce(k.reason -> 'not_found', k.reason)
            when excluded.status = 'outdated' and k.status = 'not_found'
                then excluded.reason || jsonb_build_object('not_found', k.reason)
            when excluded.status = 'outdated' and excluded.reason ->> 'code' = 'input_changed'
                and k.status not in ('ready', 'not_found') then k.reason
            else excluded.reason
        end
), by_hand as (
    -- what recomputes only by hand or by the clock is outdated by a value that changed
    update cells d set status = 'outdated', reason = '{"code": "input_changed"}'
    from judged j
    join column_references e on e.upstream_id = j.column_id
    join columns c on c.column_id = e.column_id and c.schedule <> 'on_change'
    left join cells k on k.collection_id = %(collection_id)s
        and k.row_id = j.row_id and k.column_id = j.column_id
    where (
            select exists (
                select from columns
                where collection_id = %(collection_id)s and schedule <> 'on_change'
            )
        )
        and j.verdict = 'settle' and j.outcome in ('ready', 'not_found')
        and k.user_value is null and k.computed_value is distinct from j.value::jsonb
        and d.collection_id = %(collection_id)s and d.row_id = j.row_id
        and d.column_id = e.column_id and d.status in ('ready', 'not_found')
        and not exists (
            select from queue q
            where q.collection_id = %(collection_id)s and q.row_id = d.row_id
                and q.column_id = d.column_id
        )
), held as materialized (
    select claim_id from claims
    where claim_id = any (%(held)s::bigint[])
    order by claim_id for update
), used as (
    select claim_id, count(*)::int as n from result
    where claim_id <> all (%(ended)s::bigint[]) group by claim_id
), ended as (
    delete from claims c using held
    where c.claim_id = held.claim_id and held.claim_id = any (%(ended)s::bigint[])
), shrunk as (
    update claims c set n = greatest(1, c.n - u.n)
    from used u join held using (claim_id) where c.claim_id = held.claim_id
)
select count(*) = cardinality(%(rows)s::bigint[]) as all_stood,
    array_agg(row_id) filter (where verdict <> 'settle') as rows,
    array_agg(column_id) filter (where verdict <> 'settle') as columns,
    array_agg(verdict) filter (where verdict <> 'settle') as verdicts,
    case when count(*) < cardinality(%(rows)s::bigint[])
        then array_agg(row_id) filter (where verdict = 'settle') end as settled_rows,
    case when count(*) < cardinality(%(rows)s::bigint[])
        then array_agg(column_id) filter (where verdict = 'settle') end as settled_columns,
    (
        select array_agg(distinct upstream_id) from column_references
        where upstream_id = any (%(touched)s::int[])
    ) as upstreams
from judged;

-- name: release
-- Give a place in its lane to every blocked entry among the given cells, their dependents and the
-- dependents of settled cells that has no unsettled upstream left.
-- Locks: lock_collection (so an entry's ctid stands). Index: the key of queue.
with given as materialized (
    select * from unnest(%(rows)s::bigint[], %(columns)s::int[]) as g (row_id, column_id)
), settled as materialized (
    select * from unnest(%(settled_rows)s::bigint[], %(settled_columns)s::int[])
        as s (row_id, column_id)
), near as materialized (
    select row_id, column_id from given
    union
    select s.row_id, e.column_id
    from (select * from given union all select * from settled) s
    join column_references e on e.upstream_id = s.column_id
), ready as materialized (
    select q.ctid as entry, q.row_id, q.column_id, coalesce(i.lane_id, q.lane_id) as lane_id
    from near n
    join queue q on q.collection_id = %(collection_id)s and q.row_id = n.row_id
        and q.column_id = n.column_id and q.seq is null and q.retry_at is null
    join columns c on c.column_id = q.column_id
    left join lanes i on q.interactive and i.collection_id = %(collection_id)s
        and i.run_id is null and i.cost_class = c.cost_class
    where not exists (
        select from column_references e
        join queue u on u.collection_id = %(collection_id)s and u.row_id = q.row_id
            and u.column_id = e.upstream_id
        where e.column_id = q.column_id
    )
), numbered as materialized (
    select r.*, row_number() over (partition by lane_id order by row_id, column_id) as n from ready r
), placed as (
    update queue q set seq = t.tail_seq + n.n, lane_id = n.lane_id
    from numbered n join lane_tails t using (lane_id)
    where q.ctid = n.entry
), grown as (
    select lane_id, count(*) as n from numbered group by lane_id
), tails as (
    update lane_tails t set tail_seq = t.tail_seq + g.n from grown g where t.lane_id = g.lane_id
)
select
    (select count(*) from numbered) as cells,
    exists (
        select from grown g join lane_tails t using (lane_id) join lanes l using (lane_id)
        where l.cursor_seq >= t.tail_seq
    ) as woken;

-- name: notify
-- Wake idle workers; one notification a transaction, whatever the number of calls.
select pg_notify('everfill_queue', '');

-- name: renew
-- A worker is alive and still holds these claims, as if it had just made them. Locks: the claims, by
-- number.
with held as materialized (
    select claim_id from claims where claim_id = any (%(claims)b::bigint[])
    order by claim_id for update
)
update claims c
set claimed_at = coalesce(%(now)s, now()),
    lease_until = coalesce(%(now)s, now()) + %(lease_seconds)s * interval '1 second'
from held where c.claim_id = held.claim_id;

-- name: expired_collections
-- Collections with claims past their lease, or made (or renewed) in the future: the clock was ahead
-- then, and the lease ends too late.
select distinct collection_id from claims
where lease_until < coalesce(%(now)s, now())
    or claimed_at > coalesce(%(now)s, now()) + %(future_seconds)s * interval '1 second';

-- name: reclaim
-- End the claims past their lease, or made in the future; the cells they still held are left blocked, for `release`.
-- Locks: lock_collection, the claims by number. Index: queue_place.
with held as materialized (
    select claim_id from claims
    where collection_id = %(collection_id)s and (
        lease_until < coalesce(%(now)s, now())
        or claimed_at > coalesce(%(now)s, now()) + %(future_seconds)s * interval '1 second'
    )
    order by claim_id for update
), lost as (
    delete from claims c using held where c.claim_id = held.claim_id
    returning c.lane_id, c.seq_from, c.seq_to
)
update queue q set seq = null, tries = q.tries + 1
from lost
where q.lane_id = lost.lane_id and q.seq between lost.seq_from and lost.seq_to
returning q.row_id, q.column_id, q.tries;

-- name: give_back
-- A worker that stops returns what it did not finish, as if it had never claimed it.
-- Locks: lock_collection, the claims by number. Index: queue_place.
with held as materialized (
    select claim_id from claims
    where collection_id = %(collection_id)s and claim_id = any (%(claims)b::bigint[])
    order by claim_id for update
), lost as (
    delete from claims c using held where c.claim_id = held.claim_id
    returning c.lane_id, c.seq_from, c.seq_to
)
update queue q set seq = null
from lost
where q.lane_id = lost.lane_id and q.seq between lost.seq_from and lost.seq_to
returning q.row_id, q.column_id;

-- name: fail_lost
-- Cells that took every worker that held them down with it.
-- Locks: lock_collection.
with gone as (
    delete from queue q using unnest(%(rows)b::bigint[], %(columns)b::int[]) as g (row_id, column_id)
    where q.collection_id = %(collection_id)s and q.row_id = g.row_id and q.column_id = g.column_id
    returning q.row_id, q.column_id
)
insert into cells (row_id, collection_id, column_id, status, reason)
select row_id, %(collection_id)s, column_id, 'failed', %(reason)s::text::jsonb from gone
on conflict (collection_id, row_id, column_id) do update
set status = excluded.status, reason = excluded.reason;

-- name: due_collections
-- Collections with retries that are due, or further ahead than any may be: they were written while
-- the clock was ahead. Index: queue_retry, twice.
select collection_id from queue where retry_at <= coalesce(%(now)s, now())
union
select collection_id from queue
where retry_at > coalesce(%(now)s, now()) + %(retry_seconds_max)s * interval '1 second';

-- name: retry_due
-- Retries that are due (or further ahead than any may be) stop waiting; left blocked, for `release`.
-- Locks: lock_collection. Index: queue_retry.
update queue set retry_at = null
where collection_id = %(collection_id)s and (
    retry_at <= coalesce(%(now)s, now())
    or retry_at > coalesce(%(now)s, now()) + %(retry_seconds_max)s * interval '1 second'
)
returning row_id, column_id;

-- name: stray_collections
-- Collections with something to heal: a number that was passed but lies in no claim, or entries
-- that nothing will move, because no lane of theirs has work and no claim is out.
-- Index: queue_place up to each lane's cursor, which holds only what is computing.
select distinct l.collection_id
from lanes l
where exists (
    select from queue q
    where q.lane_id = l.lane_id and q.seq <= l.cursor_seq and not exists (
        select from claims c where c.lane_id = q.lane_id and q.seq between c.seq_from and c.seq_to
    )
) or exists (
    select from queue q
    where q.collection_id = l.collection_id and q.retry_at is null and not exists (
        select from claims c where c.collection_id = l.collection_id
    ) and not exists (
        select from lanes o join lane_tails t using (lane_id)
        where o.collection_id = l.collection_id and o.cursor_seq < t.tail_seq
    )
);

-- name: stray_entries
-- Numbers that were passed but lie in no claim become blocked, for `release`; so does what is
-- blocked already.
-- Locks: lock_collection.
with stray as (
    update queue q set seq = null
    from lanes l
    where l.collection_id = %(collection_id)s and q.lane_id = l.lane_id and q.seq <= l.cursor_seq
        and not exists (
            select from claims c
            where c.lane_id = q.lane_id and q.seq between c.seq_from and c.seq_to
        )
    returning q.row_id, q.column_id
)
select row_id, column_id from stray
union
(
    select row_id, column_id from queue
    where collection_id = %(collection_id)s and seq is null and retry_at is null
    limit %(entries_max)s
);

-- name: drop_entries
-- Take cells out of the queue whatever they were doing: a late result cannot land.
-- Locks: lock_collection.
delete from queue q using unnest(%(rows)b::bigint[], %(columns)b::int[]) as g (row_id, column_id)
where q.collection_id = %(collection_id)s and q.row_id = g.row_id and q.column_id = g.column_id
returning q.row_id, q.column_id;

-- name: drop_idle_entries
-- The same for cells that no worker holds: a running call may still land.
-- Locks: lock_collection.
delete from queue q
using unnest(%(rows)b::bigint[], %(columns)b::int[]) as g (row_id, column_id), lanes l
where q.collection_id = %(collection_id)s and q.row_id = g.row_id and q.column_id = g.column_id
    and l.lane_id = q.lane_id and (q.seq is null or q.seq > l.cursor_seq)
returning q.row_id, q.column_id;

-- name: block_column
-- A column reads other columns now: what waits for its turn may have to wait for one of them first,
-- and what is computing may have read it too early, so it goes round again.
-- Locks: lock_collection.
update queue q set seq = case when q.seq <= l.cursor_seq then q.seq end,
    signal = q.signal + (q.seq <= l.cursor_seq)::int
from lanes l
where q.collection_id = %(collection_id)s and q.column_id = %(column_id)s
    and l.lane_id = q.lane_id and q.seq is not null
    and exists (
        select from column_references e
        join queue u on u.collection_id = q.collection_id and u.row_id = q.row_id
            and u.column_id = e.upstream_id
        where e.column_id = q.column_id
    );

-- name: blocked_entries
-- The next blocked entries of a column, by row. Index: the key of queue.
select row_id, column_id from queue
where collection_id = %(collection_id)s and column_id = %(column_id)s and row_id > %(after)s
    and seq is null and retry_at is null
order by row_id limit %(entries_max)s;

-- name: drop_columns
-- Take whole columns out of the queue. Locks: lock_collection.
delete from queue where collection_id = %(collection_id)s and column_id = any (%(columns)b::int[]);

-- name: drop_idle_lanes
-- Lanes without work leave the table: a claim reads only what is left. Index: queue_place.
-- Locks: lock_collection.
delete from lanes l using lane_tails t
where l.collection_id = %(collection_id)s and t.lane_id = l.lane_id and l.cursor_seq >= t.tail_seq
    and not exists (select from queue q where q.lane_id = l.lane_id)
    and not exists (select from claims c where c.lane_id = l.lane_id)
    and not exists (
        select from runs r
        where r.run_id = l.run_id and r.dispatched_at is null and r.cancelled_at is null
    );

-- name: idle_lane_collections
-- Collections that keep a lane without work.
select distinct l.collection_id from lanes l join lane_tails t using (lane_id)
where l.cursor_seq >= t.tail_seq;

-- name: backlog
-- What waits and what is computing, lane by lane.
select l.lane_id, l.run_id, l.cost_class::text, l.paused, t.tail_seq - l.cursor_seq as depth,
    coalesce((select sum(c.n) from claims c where c.lane_id = l.lane_id), 0)::int as computing
from lanes l join lane_tails t using (lane_id)
where l.collection_id = %(collection_id)s
order by l.lane_id;

-- name: is_idle
-- Whether nothing is unsettled or being dispatched in a collection.
select not exists (select from queue where collection_id = %(collection_id)s)
    and not exists (
        select from runs where collection_id = %(collection_id)s
            and dispatched_at is null and cancelled_at is null
    );

-- name: record_usage
-- What calls of one column cost; also of calls whose results could not land.
insert into usage (collection_id, column_id, calls, input_tokens, output_tokens, cost_usd)
values (%(collection_id)s, %(column_id)s, %(calls)s, %(input_tokens)s, %(output_tokens)s,
    %(cost_usd)s);

-- name: claim_collections
-- Index: the key of claims.
select distinct collection_id from claims where claim_id = any (%(claims)b::bigint[]);

-- name: health
-- What an operator should know of the queue and of what holds vacuum back.
select (select count(*) from queue), (select count(*) from claims),
    (select count(*) from claims where lease_until < now()),
    (select count(*) from runs where dispatched_at is null and cancelled_at is null
        and touched_at < now() - interval '1 minute'),
    (select coalesce(sum(n_dead_tup), 0)::bigint from pg_stat_user_tables
        where relname in ('lanes', 'lane_tails', 'lane_clocks', 'claims')),
    (select coalesce(extract(epoch from max(now() - xact_start)), 0)::float8
        from pg_stat_activity where backend_type = 'client backend' and pid <> pg_backend_pid());
