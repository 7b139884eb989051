-- name: verify_one_state
select j.id, case when q.job_id is null then 'it is neither in the queue nor has it ended'
                        else 'it is in the queue although it has ended as ' || o.state end
  from holdfast_job j
  left join holdfast_queue q on q.job_id = j.id
  left join holdfast_outcome o on o.job_id = j.id
 where (q.job_id is null) = (o.job_id is null)
 order by j.id
 limit :limit;

-- name: verify_no_orphans
select r.job_id, 'there is no such job, but a row of ' || r.source
  from (
    select job_id, 'queue' as source from holdfast_queue
    union all select job_id, 'outcome' from holdfast_outcome
    union all select job_id, 'attempt' from holdfast_attempt
    union all select job_id, 'blocker' from holdfast_blocker
    union all select job_id, 'step' from holdfast_step
    union all select job_id, 'context' from holdfast_job_context
    union all select job_id, 'output' from holdfast_output
    union all select job_id, 'failing' from holdfast_failing
    union all select job_id, 'revision' from holdfast_revision
    union all select job_id, 'progress' from holdfast_progress) r
 where not exists (select 1 from holdfast_job j where j.id = r.job_id)
 group by r.job_id, r.source
 order by r.job_id, r.source
 limit :limit;

-- name: verify_unbroken_chains
select j.chain_id, 'it has ' || count(*) || ' jobs, numbered up to ' || (max(j.chain_index) + 1)
  from holdfast_job j
 group by j.chain_id
having count(*) <> max(j.chain_index) + 1 or count(distinct j.chain_index) <> count(*) or min(j.chain_index) <> 0
 order by j.chain_id
 limit :limit;

-- name: verify_linked_chains
select j.id, case when n.id is null then 'it continued its chain, and nothing follows'
                        else 'job ' || n.id || ' follows, but it ' || coalesce('ended as ' || o.state, 'is in the queue') end
  from holdfast_job j
  left join holdfast_outcome o on o.job_id = j.id
  left join holdfast_job n on n.chain_id = j.chain_id and n.chain_index = j.chain_index + 1
 where (n.id is not null) <> coalesce(o.continued and o.state = 'completed', 0)
 order by j.id
 limit :limit;

-- name: verify_held_by_a_lease
select q.job_id, 'its token ' || q.token || ' belongs to no lease'
  from holdfast_queue q
 where q.token is not null and not exists (select 1 from holdfast_lease l where l.token = q.token)
 order by q.job_id
 limit :limit;

-- name: verify_fences_grow
select r.job_id, 'a row of ' || r.source || ' has the fence ' || r.fence || ', the job ' || coalesce(q.fence, o.fence)
  from (
    select job_id, 'attempt' as source, max(fence) as fence from holdfast_attempt group by job_id
    union all select job_id, 'step', max(fence) from holdfast_step group by job_id) r
  left join holdfast_queue q on q.job_id = r.job_id
  left join holdfast_outcome o on o.job_id = r.job_id
 where r.fence > coalesce(q.fence, o.fence)
 order by r.job_id
 limit :limit;

-- name: verify_blocked_by_something
select q.job_id, 'it is blocked, but no chain it waits for is open'
  from holdfast_queue q
 where q.available_at = 9223372036854775807 and q.token is null and q.steps is not 1
   and not exists (select 1 from holdfast_blocker b where b.job_id = q.job_id and b.open)
 order by q.job_id
 limit :limit;

-- name: verify_waits_are_kept
select q.job_id, 'it waits for chain ' || min(b.chain_id)
                       || case when q.token is null then ' and can be claimed' else ' and is claimed' end
  from holdfast_queue q
  join holdfast_blocker b on b.job_id = q.job_id and b.open and b.step is null
 where q.available_at is not 9223372036854775807 or q.token is not null
 group by q.job_id, q.token
 order by q.job_id
 limit :limit;

-- name: verify_ends_are_noticed
select b.job_id, 'it waits for chain ' || b.chain_id || ', which has ' || coalesce('ended as ' || o.state, 'no jobs')
  from holdfast_blocker b
  join holdfast_queue q on q.job_id = b.job_id
  left join holdfast_job t
    on t.id = (select l.id from holdfast_job l where l.chain_id = b.chain_id order by l.chain_index desc limit 1)
  left join holdfast_outcome o on o.job_id = t.id
 where b.open and (t.id is null or (o.job_id is not null and (o.state = 'completed' or b.on_failure <> 'wait')))
 order by b.job_id
 limit :limit;

-- name: verify_tallies_agree
select type, 'counted: ' || sum(counted) || ' in the queue, ' || sum(counted_failed) || ' failed; stored: '
             || sum(stored) || ' in the queue, ' || sum(stored_failed) || ' failed'
  from (
    select type, started - completed - failed - cancelled - removed as counted, failed as counted_failed, 0 as stored,
           0 as stored_failed
      from holdfast_tally
    union all
    select type, 0, 0, count(*), 0 from holdfast_queue group by type
    union all
    select type, 0, 0, 0, count(*) from holdfast_outcome where state = 'failed' group by type) r
 group by type
having sum(counted) <> sum(stored) or sum(counted_failed) <> sum(stored_failed)
 order by type
 limit :limit;

-- name: verify_keys_have_chains
select k.type || ' ' || k.key, 'it deduplicates for chain ' || k.chain_id || ', which does not exist and was not removed'
  from holdfast_chain_key k
 where k.gone_at is null and k.type not like 'used %'
   and not exists (select 1 from holdfast_job j where j.id = k.chain_id)
 order by k.type, k.key
 limit :limit;

-- name: verify_readers_within_the_log
select p.reader, 'line ' || p.line || ' ends at ' || s.place || ', and it is at ' || p.position
  from holdfast_log_position p
  join holdfast_log_line s on s.line = p.line
 where p.position > s.place
 order by p.reader, p.line
 limit :limit;

-- fragment: verify_limit_rules
-- What workers say of their limits in code: `id` is null for the limit of each key. The most that a job of a type counts is the
-- least of the numbers of costs that it is bound by, so that it fits into each.
select worker, seen_at, live_ms, type, id, allowed, cost_allowed,
         min(min(coalesce(cost_allowed, cost_rate), coalesce(cost_rate, cost_allowed))) over (partition by worker, type) as max_cost
    from (
      select w.id as worker, w.seen_at, w.live_ms, t.key as type, json_extract(s.value, '$.id') as id,
             json_extract(s.value, '$.allowed') as allowed, json_extract(s.value, '$.cost_allowed') as cost_allowed,
             json_extract(s.value, '$.cost_rate') as cost_rate
        from holdfast_worker w, json_each(w.limits) t, json_each(t.value, '$.shared') s
      union all
      select w.id, w.seen_at, w.live_ms, t.key, null, json_extract(t.value, '$.line.allowed'),
             json_extract(t.value, '$.line.cost_allowed'), json_extract(t.value, '$.line.cost_rate')
        from holdfast_worker w, json_each(w.limits) t
       where json_type(t.value, '$.line') = 'object') r

-- name: verify_permits_are_recorded
-- Jobs without a key have the limits of the whole type only. Judged by what the worker of a job's lease says; where one that says
-- nothing of this limit has served the type since, as in a deployment that adds it, what is recorded is not complete. Workers claim
-- a moment before they are on record.
with rules as materialized (
  {verify_limit_rules})
select q.job_id, 'it is claimed, but partition ' || coalesce(r.id, q.gate) || ' did not let it in'
  from holdfast_queue q
  join holdfast_lease l on l.token = q.token
  join rules r on r.worker = l.worker and r.type = q.type and r.allowed is not null and (r.id is not null or q.gate <> q.type || '#')
 where q.gate is not null
   and not exists (
     select 1 from holdfast_gate g, json_each(g.holders) h where g.id = coalesce(r.id, q.gate) and h.value = q.job_id)
   and not exists (
     select 1 from holdfast_worker w
      where w.seen_at + w.live_ms * 1000 >= l.claimed_at and q.type in (select value from json_each(w.types))
        and not exists (
          select 1 from rules o where o.worker = w.id and o.type = q.type and o.id is r.id and o.allowed is not null))
   and not exists (
     select 1 from rules o where o.id = r.id and o.allowed is null and o.seen_at + o.live_ms * 1000 >= l.claimed_at)
   and not exists (
     select 1 from holdfast_lease o where o.claimed_at >= l.claimed_at and o.worker not in (select id from holdfast_worker))
 order by q.job_id, coalesce(r.id, q.gate)
 limit :limit;

-- name: verify_limits_hold
-- Held against the number by which the last of them was let in: other versions of the code may have other numbers. After a change
-- at run time more may run than are allowed now, so nothing is said before the next is let in. A job that costs more than a limit
-- counts as the limit, and one that costs nothing is let in where nothing is left.
with rules as materialized (
  {verify_limit_rules}),
held as materialized (
  select g.id, l.claimed_at, coalesce(j.cost, 1) as cost, min(coalesce(j.cost, 1), coalesce(r.max_cost, j.cost, 1)) as weight, r.cost_allowed,
         coalesce(s.allowed, case when g.id = q.gate and g.id <> q.type || '#' then e.allowed end, r.allowed) as allowed,
         max(coalesce(s.changed_at, 0), coalesce(e.changed_at, 0)) as changed_at
    from holdfast_gate g
   cross join json_each(g.holders) h
    join holdfast_queue q on q.job_id = h.value and (q.gate = g.id or g.id not like '%#%')
    join holdfast_lease l on l.token = q.token
    join holdfast_job j on j.id = q.job_id
    left join rules r
      on r.worker = l.worker and r.type = q.type and coalesce(r.id, q.gate) = g.id and (r.id is not null or q.gate <> q.type || '#')
    left join holdfast_limit_setting s on s.id = g.id
    left join holdfast_limit_setting e on e.id = '*' || q.type),
latest as (
  select h.id, count(*) as number, sum(h.weight) as weight, max(h.claimed_at) as claimed_at, max(h.changed_at) as changed_at,
         (select x.allowed from held x where x.id = h.id order by x.claimed_at desc, x.allowed is not null, x.allowed desc limit 1) as allowed,
         (select x.cost_allowed from held x where x.id = h.id and x.cost > 0
           order by x.claimed_at desc, x.cost_allowed is not null, x.cost_allowed desc limit 1) as cost_allowed
    from held h
   group by h.id)
select n.id, case when n.number > n.allowed then n.number || ' of its jobs are claimed, ' || n.allowed || ' are allowed'
                  else 'its claimed jobs cost ' || n.weight || ', ' || n.cost_allowed || ' is allowed' end
  from latest n
 where (n.number > n.allowed or n.weight > n.cost_allowed)
   and n.changed_at < n.claimed_at - 60000000
   and not exists (select 1 from holdfast_audit a where a.action = 'limit.set' and a.at >= n.claimed_at - 60000000)
 order by n.id
 limit :limit;
