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
select j.chain_id::text, 'it has ' || count(*) || ' jobs, numbered up to ' || max(j.chain_index) + 1
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
