-- name: verify_one_state
select j.id::text, case when q.job_id is null then 'it is neither in the queue nor has it ended'
                        else 'it is in the queue although it has ended as ' || o.state end
  from holdfast.job j
  left join holdfast.queue q on q.job_id = j.id
  left join holdfast.outcome o on o.job_id = j.id
 where (q.job_id is null) = (o.job_id is null)
 order by j.id
 limit :limit::integer;

-- name: verify_no_orphans
select r.job_id::text, 'there is no such job, but a row of ' || r.source
  from (
    select job_id, 'queue' as source from holdfast.queue
    union all select job_id, 'outcome' from holdfast.outcome
    union all select job_id, 'attempt' from holdfast.attempt
    union all select job_id, 'blocker' from holdfast.blocker
    union all select job_id, 'context' from holdfast.job_context
    union all select job_id, 'step' from holdfast.step
    union all select job_id, 'output' from holdfast.output
    union all select job_id, 'failing' from holdfast.failing
    union all select job_id, 'revision' from holdfast.revision
    union all select job_id, 'progress' from holdfast.progress) r
 where not exists (select from holdfast.job j where j.id = r.job_id)
 group by r.job_id, r.source
 order by r.job_id, r.source
 limit :limit::integer;

-- name: verify_unbroken_chains
select j.chain_id::text, 'it has ' || count(*) || ' jobs, numbered up to ' || (max(j.chain_index) + 1)
  from holdfast.job j
 group by j.chain_id
having count(*) <> max(j.chain_index) + 1 or count(distinct j.chain_index) <> count(*) or min(j.chain_index) <> 0
 order by j.chain_id
 limit :limit::integer;

-- name: verify_linked_chains
select j.id::text, case when n.id is null then 'it continued its chain, and nothing follows'
                        else 'job ' || n.id || ' follows, but it ' || coalesce('ended as ' || o.state, 'is in the queue') end
  from holdfast.job j
  left join holdfast.outcome o on o.job_id = j.id
  left join holdfast.job n on n.chain_id = j.chain_id and n.chain_index = j.chain_index + 1
 where (n.id is not null) <> coalesce(o.continued and o.state = 'completed', false)
 order by j.id
 limit :limit::integer;

-- name: verify_held_by_a_lease
select q.job_id::text, 'its token ' || q.token || ' belongs to no lease'
  from holdfast.queue q
 where q.token is not null and not exists (select from holdfast.lease l where l.token = q.token)
 order by q.job_id
 limit :limit::integer;

-- name: verify_fences_grow
select r.job_id::text, 'a row of ' || r.source || ' has the fence ' || r.fence || ', the job ' || coalesce(q.fence, o.fence)
  from (
    select job_id, 'attempt' as source, max(fence) as fence from holdfast.attempt group by job_id
    union all select job_id, 'step', max(fence) from holdfast.step group by job_id) r
  left join holdfast.queue q on q.job_id = r.job_id
  left join holdfast.outcome o on o.job_id = r.job_id
 where r.fence > coalesce(q.fence, o.fence)
 order by r.job_id
 limit :limit::integer;

-- name: verify_blocked_by_something
select q.job_id::text, 'it is blocked, but no chain it waits for is open'
  from holdfast.queue q
 where q.available_at = 'infinity' and q.token is null and q.steps is not true
   and not exists (select from holdfast.blocker b where b.job_id = q.job_id and b.open)
 order by q.job_id
 limit :limit::integer;

-- name: verify_waits_are_kept
select q.job_id::text, 'it waits for chain ' || min(b.chain_id::text)
                       || case when q.token is null then ' and can be claimed' else ' and is claimed' end
  from holdfast.queue q
  join holdfast.blocker b on b.job_id = q.job_id and b.open and b.step is null
 where q.available_at is distinct from 'infinity' or q.token is not null
 group by q.job_id, q.token
 order by q.job_id
 limit :limit::integer;

-- name: verify_ends_are_noticed
select b.job_id::text, 'it waits for chain ' || b.chain_id || ', which has ' || coalesce('ended as ' || o.state, 'no jobs')
  from holdfast.blocker b
  join holdfast.queue q on q.job_id = b.job_id
  left join lateral (
    select t.id from holdfast.job t where t.chain_id = b.chain_id order by t.chain_index desc limit 1) t on true
  left join holdfast.outcome o on o.job_id = t.id
 where b.open and (t.id is null or (o.job_id is not null and (o.state = 'completed' or b.on_failure <> 'wait')))
 order by b.job_id
 limit :limit::integer;

-- name: verify_tallies_agree
select type, 'counted: ' || sum(counted) || ' in the queue, ' || sum(counted_failed) || ' failed; stored: '
             || sum(stored) || ' in the queue, ' || sum(stored_failed) || ' failed'
  from (
    select type, started - completed - failed - cancelled - removed as counted, failed as counted_failed, 0 as stored,
           0 as stored_failed
      from holdfast.tally
    union all
    select type, 0, 0, count(*), 0 from holdfast.queue group by type
    union all
    select type, 0, 0, 0, count(*) from holdfast.outcome where state = 'failed' group by type) r
 group by type
having sum(counted) <> sum(stored) or sum(counted_failed) <> sum(stored_failed)
 order by type
 limit :limit::integer;

-- name: verify_keys_have_chains
select k.type || ' ' || k.key, 'it deduplicates for chain ' || k.chain_id || ', which does not exist and was not removed'
  from holdfast.chain_key k
 where k.gone_at is null and k.type not like 'used %'
   and not exists (select from holdfast.job j where j.id = k.chain_id)
 order by k.type, k.key
 limit :limit::integer;

-- name: verify_readers_within_the_log
-- Places are drawn from a sequence that never goes back, and stay drawn when their rows are dropped.
select p.reader, 'line ' || p.line || ' ends at ' || coalesce(s.last_value, 0) || ', and it is at ' || p.position
  from holdfast.log_position p
  join pg_catalog.pg_sequences s on s.schemaname = (select n.nspname from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
                                          where c.oid = 'holdfast.log_position'::pg_catalog.regclass)
                     and s.sequencename = 'log_line_' || p.line
 where p.position > coalesce(s.last_value, 0)
 order by p.reader, p.line
 limit :limit::integer;

-- fragment: verify_limit_rules
-- What workers say of their limits in code: `id` is null for the limit of each key. The most that a job of a type counts is the
-- least of the numbers of costs that it is bound by, so that it fits into each.
select w.id as worker, w.seen_at, w.live_ms, t.key as type, r.one ->> 'id' as id, (r.one ->> 'allowed')::bigint as allowed,
         (r.one ->> 'cost_allowed')::bigint as cost_allowed,
         min(least((r.one ->> 'cost_allowed')::bigint, (r.one ->> 'cost_rate')::bigint)) over (partition by w.id, t.key) as max_cost
    from holdfast.worker w
   cross join lateral json_each(w.limits::json) t
   cross join lateral (
     select s.value as one from json_array_elements(coalesce(t.value -> 'shared', '[]')) s
     union all
     select json_build_object('allowed', t.value -> 'line' -> 'allowed', 'cost_allowed', t.value -> 'line' -> 'cost_allowed',
                              'cost_rate', t.value -> 'line' -> 'cost_rate')
      where json_typeof(t.value -> 'line') = 'object') r

-- name: verify_permits_are_recorded
-- Jobs without a key have the limits of the whole type only. Judged by what the worker of a job's lease says; where one that says
-- nothing of this limit has served the type since, as in a deployment that adds it, what is recorded is not complete. Workers claim
-- a moment before they are on record.
with rules as materialized (
  {verify_limit_rules})
select q.job_id::text, 'it is claimed, but partition ' || coalesce(r.id, q.gate) || ' did not let it in'
  from holdfast.queue q
  join holdfast.lease l on l.token = q.token
  join rules r on r.worker = l.worker and r.type = q.type and r.allowed is not null and (r.id is not null or q.gate <> q.type || '#')
 where q.gate is not null
   and not exists (
     select from (
       select g.holders from holdfast.gate g where g.id = coalesce(r.id, q.gate) and g.turn > 0 order by g.turn desc limit 1) g
      where q.job_id = any (g.holders))
   and not exists (
     select from holdfast.worker w
      where w.seen_at + w.live_ms * interval '1 ms' >= l.claimed_at and w.types::jsonb ? q.type
        and not exists (
          select from rules o
           where o.worker = w.id and o.type = q.type and o.id is not distinct from r.id and o.allowed is not null))
   and not exists (
     select from rules o
      where o.id = r.id and o.allowed is null and o.seen_at + o.live_ms * interval '1 ms' >= l.claimed_at)
   and not exists (
     select from holdfast.lease o
      where o.claimed_at >= l.claimed_at and not exists (select from holdfast.worker w where w.id = o.worker))
 order by q.job_id, coalesce(r.id, q.gate)
 limit :limit::integer;

-- name: verify_limits_hold
-- Held against the number by which the last of them was let in: other versions of the code may have other numbers. After a change
-- at run time more may run than are allowed now, so nothing is said before the next is let in. A job that costs more than a limit
-- counts as the limit, and one that costs nothing is let in where nothing is left.
with rules as materialized (
  {verify_limit_rules}),
held as materialized (
  select g.id, l.claimed_at, x.cost, least(x.cost, r.max_cost) as weight, r.cost_allowed,
         coalesce(s.allowed, case when g.id = q.gate and g.id <> q.type || '#' then e.allowed end, r.allowed) as allowed,
         greatest(s.changed_at, e.changed_at) as changed_at
    from (
      select distinct on (id) id, holders from holdfast.gate where turn > 0 order by id, turn desc) g
    join holdfast.queue q on q.job_id = any (g.holders) and (q.gate = g.id or g.id not like '%#%')
    join holdfast.lease l on l.token = q.token
    join holdfast.job j on j.id = q.job_id
   cross join lateral (select coalesce(j.cost, 1) as cost) x
    left join rules r
      on r.worker = l.worker and r.type = q.type and coalesce(r.id, q.gate) = g.id and (r.id is not null or q.gate <> q.type || '#')
    left join holdfast.limit_setting s on s.id = g.id
    left join holdfast.limit_setting e on e.id = '*' || q.type),
latest as (
  select h.id, count(*) as number, sum(h.weight) as weight, max(h.claimed_at) as claimed_at, max(h.changed_at) as changed_at,
         (array_agg(h.allowed order by h.claimed_at desc, h.allowed desc nulls first))[1] as allowed,
         (array_agg(h.cost_allowed order by h.claimed_at desc, h.cost_allowed desc nulls first) filter (where h.cost > 0))[1] as cost_allowed
    from held h
   group by h.id)
select n.id, case when n.number > n.allowed then n.number || ' of its jobs are claimed, ' || n.allowed || ' are allowed'
                  else 'its claimed jobs cost ' || n.weight || ', ' || n.cost_allowed || ' is allowed' end
  from latest n
 where (n.number > n.allowed or n.weight > n.cost_allowed)
   and (n.changed_at >= n.claimed_at - interval '1 minute') is not true
   and not exists (select from holdfast.audit a where a.action = 'limit.set' and a.at >= n.claimed_at - interval '1 minute')
 order by n.id
 limit :limit::integer;
