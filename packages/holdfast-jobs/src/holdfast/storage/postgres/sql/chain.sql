-- fragment: chain_columns
-- A chain of its first job `f` and its last job `t`: the fields of `ChainRecord`, in their order.
f.id::text, f.type, t.state, f.key, f.input,
       case when t.state = 'completed' then t.output end, case when t.state in ('failed', 'cancelled') then t.error end,
       t.chain_index + 1, holdfast.us(f.created_at), holdfast.us(t.finished_at)

-- name: chain_key_claim
-- Claims deduplication keys in key order; a producer of the same key waits here for the other's commit. A key is free again
-- when its chain ended other than by failure (scope open), when its window has passed, or when its chain is excluded. One
-- that was claimed with scope any and no window is kept: it outlives its chain, and still counts for those with that scope.
-- A caller that gets no row back has lost and asks chain_key_get.
insert into holdfast.chain_key as held (type, key, chain_id, until, kept)
select x.type, x.key, x.chain_id, holdfast.moment(:now::bigint) + x.window_ms * interval '1 ms',
       :scope = 'any' and x.window_ms is null
  from json_to_recordset(:rows::json) as x(type text, key text, chain_id uuid, window_ms bigint)
 order by x.type, x.key
on conflict (type, key) do update
   set chain_id = excluded.chain_id, until = excluded.until, kept = held.kept or excluded.kept, gone_at = null
  where held.until <= holdfast.moment(:now::bigint)
     or held.chain_id = any (array (select e::uuid from json_array_elements_text(:exclude::json) e))
     or (:scope = 'open' and held.gone_at is not null and not exists (
          select from holdfast.job j where j.id = held.chain_id))
     or (:scope = 'open' and exists (
          select from holdfast.job j join holdfast.outcome o on o.job_id = j.id
           where j.chain_id = held.chain_id and not o.continued and o.state in ('completed', 'cancelled')))
returning chain_id::text;

-- name: chain_key_get
select k.type, k.key, k.chain_id::text, k.kept
  from json_to_recordset(:rows::json) as x(type text, key text)
  join holdfast.chain_key k on k.type = x.type and k.key = x.key;

-- name: chain_key_keep
-- Lets keys outlive their chains: those who were deduplicated with scope any were promised that too.
update holdfast.chain_key k set kept = true
  from json_to_recordset(:rows::json) as x(type text, key text)
 where k.type = x.type and k.key = x.key and not k.kept;

-- name: chain_key_take
-- Hands keys over to chains that follow the present holders; the caller has lost `chain_key_claim`, which holds the rows.
update holdfast.chain_key k set chain_id = x.chain_id, until = null, gone_at = null
  from json_to_recordset(:rows::json) as x(type text, key text, chain_id uuid, holder uuid)
 where k.type = x.type and k.key = x.key and k.chain_id = x.holder
returning k.chain_id::text;

-- name: chain_key_use
-- Records a key of no chain, once: another transaction with the same key waits here for the commit. To retention it is a
-- kept key whose chain is gone already.
insert into holdfast.chain_key (type, key, chain_id, kept, gone_at)
values (:type, :key, '00000000-0000-0000-0000-000000000000', true, holdfast.moment(:now::bigint))
on conflict (type, key) do nothing
returning 1;

-- name: chain_tail
-- The last job of each chain and its state.
select t.chain_id::text, t.id::text, t.chain_index, t.state, t.context
  from json_array_elements_text(:ids::json) c(id)
 cross join lateral (
   select v.* from holdfast.jobs v where v.chain_id = c.id::uuid order by v.chain_index desc limit 1) t;

-- name: chain_get
select {chain_columns}
  from json_array_elements_text(:ids::json) c(id)
  join holdfast.job f on f.id = c.id::uuid and f.chain_index = 0
 cross join lateral (
   select v.state, v.output, v.error, v.chain_index, v.finished_at
     from holdfast.jobs v where v.chain_id = f.id order by v.chain_index desc limit 1) t;

-- name: chain_walk
-- The newest chains before an id.
select chain_id::text
  from holdfast.job j
 where j.chain_index = 0 and j.chain_id < coalesce(:before::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
 order by j.chain_id desc
 limit :limit::integer;

-- name: chain_walk_blocker
-- The same of those with a job that waits, or waited, for one chain.
select distinct on (j.chain_id) chain_id::text
  from (select job_id from holdfast.blocker where chain_id = :blocker::uuid) b
  join holdfast.job j on j.id = b.job_id
 where j.chain_id < coalesce(:before::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
 order by j.chain_id desc
 limit :limit::integer;

-- name: chain_list
-- Those of these chains that fit, the newest first; every filter is optional.
select {chain_columns}
  from holdfast.job f
 cross join lateral (
   select v.id, v.state, v.output, v.error, v.fingerprint, v.chain_index, v.finished_at, v.attempt, v.locked_by
     from holdfast.jobs v where v.chain_id = f.id order by v.chain_index desc limit 1) t
 where f.chain_index = 0
   and f.id = any (array (select i::uuid from json_array_elements_text(:ids::json) i))
   and (:states::json is null or t.state in (select json_array_elements_text(:states::json)))
   and (:types::json is null or f.type in (select json_array_elements_text(:types::json)))
   and (:type_like::text is null or f.type like :type_like)
   and (:chain::uuid is null or f.id = :chain::uuid)
   and (:blocker::uuid is null or exists (
         select from holdfast.job w join holdfast.blocker b on b.job_id = w.id
          where w.chain_id = f.id and b.chain_id = :blocker::uuid))
   and (:key::text is null or f.key = :key)
   and (:key_like::text is null or f.key like :key_like)
   and (:error_like::text is null or t.error ilike :error_like)
   and (:fingerprint::text is null or t.fingerprint = :fingerprint)
   and (:worker::text is null or t.locked_by = :worker)
   and (:step::text is null or exists (select from holdfast.step s where s.job_id = t.id and s.name = :step))
   and (:context::json is null or not exists (
         select from json_each_text(:context::json) e
          where not exists (
            select from holdfast.job_context c where c.name = e.key and c.value = e.value and c.job_id = f.id)))
   and (:waiting::text is null or exists (
         select from holdfast.step s join holdfast.queue w on w.job_id = s.job_id
          where s.job_id = t.id and s.state = 'open' and s.kind = 'wait' and s.signal = :waiting))
   and (:attempt_min::bigint is null or t.attempt >= :attempt_min::bigint)
   and (:attempt_max::bigint is null or t.attempt <= :attempt_max::bigint)
   and (:age_min_ms::bigint is null or f.created_at <= holdfast.moment(:now::bigint) - :age_min_ms::bigint * interval '1 ms')
   and (:age_max_ms::bigint is null or f.created_at >= holdfast.moment(:now::bigint) - :age_max_ms::bigint * interval '1 ms')
   and (:words::json is null or not exists (
         select from json_array_elements_text(:words::json) w(word)
          where concat_ws(e'\n', f.type, f.key, t.error, f.id::text) not ilike w.word))
 order by f.id desc
 limit :limit::integer;

-- name: chain_jobs
-- The newest first: a chain that continues for years is read from its end.
select {job_columns}
  from holdfast.jobs
 where chain_id = :chain::uuid
 order by chain_index desc
 limit :limit::integer;

-- name: chain_references
-- Which open jobs outside these chains wait for them.
select b.chain_id::text, b.job_id::text, j.chain_id::text
  from holdfast.blocker b join holdfast.job j on j.id = b.job_id
 where b.chain_id = any (array (select c::uuid from json_array_elements_text(:chains::json) c)) and b.open
   and j.chain_id <> all (array (select c::uuid from json_array_elements_text(:chains::json) c))
 order by b.chain_id, b.job_id;

-- name: chain_blockers
-- The chains that any job of these chains waits or waited for: the way down of a cascade.
select distinct b.chain_id::text
  from holdfast.job j join holdfast.blocker b on b.job_id = j.id
 where j.chain_id = any (array (select c::uuid from json_array_elements_text(:chains::json) c));

-- name: chain_delete
-- Removes chains with everything that belongs to them; the caller has locked the live rows and checked the references.
with gone as materialized (
  select id, type from holdfast.job
   where chain_id = any (array (select c::uuid from json_array_elements_text(:chains::json) c))),
live as (
  delete from holdfast.queue where job_id = any (array (select id from gone)) returning job_id, type, priority, gate),
ended as (
  delete from holdfast.outcome where job_id = any (array (select id from gone)) returning job_id, type, state, gate, fanned_out),
-- An ordered queue may wait for the failed job that is dropped here.
freed_partition as (
  select type, priority, gate, null::timestamptz as since from live
  union all
  select type, 5::smallint, gate, null from ended),
signalled as (
  {signal_freed}),
tried as (delete from holdfast.attempt where job_id = any (array (select id from gone))),
told as (delete from holdfast.progress where job_id = any (array (select id from gone))),
undone as (delete from holdfast.failing where job_id = any (array (select id from gone))),
revised as (delete from holdfast.revision where job_id = any (array (select id from gone))),
recorded as (delete from holdfast.step where job_id = any (array (select id from gone))),
emitted as (
  delete from holdfast.output
   where chain_id = any (array (select c::uuid from json_array_elements_text(:chains::json) c))),
edges as (delete from holdfast.blocker where job_id = any (array (select id from gone))),
keys as (
  delete from holdfast.chain_key k using holdfast.job j
   where j.id = any (array (select id from gone)) and j.chain_index = 0 and j.key is not null
     and k.type = j.type and k.key = j.key and k.chain_id = j.id and not (:keep_keys::boolean and k.kept)),
outlived as (
  update holdfast.chain_key k set gone_at = holdfast.moment(:now::bigint) from holdfast.job j
   where j.id = any (array (select id from gone)) and j.chain_index = 0 and j.key is not null
     and k.type = j.type and k.key = j.key and k.chain_id = j.id and :keep_keys::boolean and k.kept),
tallied as (
  insert into holdfast.tally (at, type, completed, failed, cancelled, removed)
  select holdfast.moment(:now::bigint), type, sum(completed), sum(failed), sum(cancelled), sum(removed)
    from (
      select type, 0 as completed, 0 as failed, 0 as cancelled, 1 as removed from live
      union all
      select type, -(state = 'completed')::integer, -(state = 'failed')::integer, -(state = 'cancelled')::integer, 1
        from ended where fanned_out is not true) counted
   group by type)
delete from holdfast.job where id = any (array (select id from gone))
returning id::text, chain_id::text, type;

-- name: blocker_insert
insert into holdfast.blocker (job_id, position, chain_id, on_failure, open, step)
select job_id, position, chain_id, on_failure, true, step
  from json_to_recordset(:rows::json) as x(job_id uuid, position integer, chain_id uuid, on_failure text, step integer);

-- name: blocker_await
-- Marks the live tails of chains as awaited, waiting for transactions that are ending them. A tail that is gone is not returned: the
-- caller reads the chain again and finds a new tail or the end. Producers that append revisions to one are not in the way: one that
-- came too late keeps its lock, and may be waiting for a key that the caller holds.
with tails as (
  select q.job_id from holdfast.queue q
   where q.job_id = any (array (select i::uuid from json_array_elements_text(:tails::json) i))
   order by q.job_id
   for no key update)
update holdfast.queue q set awaited = true
 where q.job_id = any (array (select job_id from tails))
returning q.job_id::text;

-- name: blocker_hold_ended
-- Holds the ended tails of failed chains against a redrive that would not know of a new waiter.
select o.job_id::text from holdfast.outcome o
 where o.job_id = any (array (select i::uuid from json_array_elements_text(:tails::json) i))
 order by o.job_id
   for share;

-- name: blocker_lock_ended
-- Locks the ended tails of chains that are about to go, waiting for transactions that are attaching a waiter to one of them.
select o.job_id::text from holdfast.outcome o
 where o.job_id = any (array (select i::uuid from json_array_elements_text(:tails::json) i))
 order by o.job_id
   for update;

-- name: blocker_dependents
-- Locks the jobs that wait for these chains, in id order, before anything is decided about them. Producers that append
-- revisions to one are not in the way.
select q.job_id::text from holdfast.queue q
 where q.job_id = any (array (
   select b.job_id from holdfast.blocker b
    where b.chain_id = any (array (select c::uuid from json_array_elements_text(:chains::json) c)) and b.open))
 order by q.job_id
   for no key update;

-- name: blocker_close
-- Closes the edges of ended chains that their policy lets through, and says what each dependent must do.
update holdfast.blocker b set open = false
  from json_to_recordset(:rows::json) as x(chain_id uuid, state text)
 where b.chain_id = x.chain_id and b.open and (x.state = 'completed' or b.on_failure <> 'wait')
returning b.job_id::text, b.chain_id::text, x.state <> 'completed' and b.on_failure = 'fail', b.step;

-- name: blocker_open_jobs
-- Opens the dependents that have no open edge left; they were locked before, so this happens once.
with queued as (
  update holdfast.queue q
     set available_at = case when q.gate is null then greatest(j.planned_at, holdfast.moment(:now::bigint)) end,
         gate_at = case when q.gate is not null then greatest(j.planned_at, holdfast.moment(:now::bigint)) end
    from holdfast.job j
   where q.job_id = any (array (select i::uuid from json_array_elements_text(:ids::json) i)) and j.id = q.job_id
     and q.available_at = 'infinity'
     and not exists (select from holdfast.blocker b where b.job_id = q.job_id and b.open)
  returning q.job_id, q.type, q.priority, q.gate, q.gate_at, q.version),
signalled as (
  {signal_placed})
select job_id::text, type from queued;

-- name: blocker_list
select b.job_id::text, b.position, b.chain_id::text, b.open, b.on_failure, t.state,
       case when t.state = 'completed' then t.output end, t.error, b.step
  from holdfast.blocker b
  left join lateral (
    select v.state, v.output, v.error from holdfast.jobs v where v.chain_id = b.chain_id order by v.chain_index desc limit 1) t on true
 where b.job_id = any (array (select i::uuid from json_array_elements_text(:ids::json) i))
 order by b.job_id, b.position;

-- name: blocker_waiting
-- Which jobs wait, or waited, for this chain.
select b.job_id::text, b.position, b.chain_id::text, b.open, b.on_failure, null, null, null, b.step
  from holdfast.blocker b
 where b.chain_id = :chain::uuid
 order by b.job_id, b.position
 limit :limit::integer;

-- name: blocker_dependent_chains
-- Which chains wait for a chain, themselves or through others, and for which of them: a walk along open edges.
with recursive waits (waiting, for_chain) as (
  select j.chain_id, b.chain_id
    from holdfast.blocker b join holdfast.job j on j.id = b.job_id
   where b.chain_id = :chain::uuid and b.open
  union
  select j.chain_id, b.chain_id
    from waits w
    join holdfast.blocker b on b.chain_id = w.waiting and b.open
    join holdfast.job j on j.id = b.job_id)
select waiting::text, for_chain::text from waits limit :limit::integer;
