-- fragment: chain_columns
-- A chain of its first job `f` and its last job `t`: the fields of `ChainRecord`, in their order.
f.id, f.type, t.state, f.key, f.input,
       case when t.state = 'completed' then t.output end, case when t.state in ('failed', 'cancelled') then t.error end,
       t.chain_index + 1, f.created_at, t.finished_at

-- name: chain_key_claim
-- Claims deduplication keys. A key is free again when its chain ended other than by failure (scope open), when its window has
-- passed, or when its chain is excluded. One that was claimed with scope any and no window is kept: it outlives its chain, and
-- still counts for those with that scope. A caller that gets no row back has lost and asks chain_key_get.
insert into holdfast_chain_key as held (type, key, chain_id, until, kept)
select json_extract(value, '$.type'), json_extract(value, '$.key'), json_extract(value, '$.chain_id'),
       {now} + json_extract(value, '$.window_ms') * 1000,
       :scope = 'any' and json_extract(value, '$.window_ms') is null
  from json_each(:rows)
 where true
on conflict (type, key) do update
   set chain_id = excluded.chain_id, until = excluded.until, kept = held.kept or excluded.kept, gone_at = null
  where held.until <= {now}
     or held.chain_id in (select value from json_each(:exclude))
     or (:scope = 'open' and held.gone_at is not null and not exists (
          select 1 from holdfast_job j where j.id = held.chain_id))
     or (:scope = 'open' and exists (
          select 1 from holdfast_job j cross join holdfast_outcome o on o.job_id = j.id
           where j.chain_id = held.chain_id and not o.continued and o.state in ('completed', 'cancelled')))
returning chain_id;

-- name: chain_key_get
select k.type, k.key, k.chain_id, k.kept
  from json_each(:rows) x
 cross join holdfast_chain_key k on k.type = json_extract(x.value, '$.type') and k.key = json_extract(x.value, '$.key');

-- name: chain_key_keep
-- Lets keys outlive their chains: those who were deduplicated with scope any were promised that too.
update holdfast_chain_key set kept = 1
 where (type, key) in (select json_extract(value, '$.type'), json_extract(value, '$.key') from json_each(:rows));

-- name: chain_key_take
-- Hands keys over to chains that follow the present holders.
update holdfast_chain_key
   set chain_id = x.chain_id, until = null, gone_at = null
  from (select json_extract(value, '$.type') as type, json_extract(value, '$.key') as key,
               json_extract(value, '$.chain_id') as chain_id, json_extract(value, '$.holder') as holder
          from json_each(:rows)) x
 where holdfast_chain_key.type = x.type and holdfast_chain_key.key = x.key and holdfast_chain_key.chain_id = x.holder
returning chain_id;

-- name: chain_key_use
-- Records a key of no chain, once. To retention it is a kept key whose chain is gone already.
insert into holdfast_chain_key (type, key, chain_id, kept, gone_at)
values (:type, :key, '00000000-0000-0000-0000-000000000000', 1, {now})
on conflict (type, key) do nothing
returning 1;

-- name: chain_tail
-- The last job of each chain and its state.
select t.chain_id, t.id, t.chain_index, t.state, t.context
  from json_each(:ids) c
 cross join holdfast_job_state t
    on t.id = (select j.id from holdfast_job j where j.chain_id = c.value order by j.chain_index desc limit 1);

-- name: chain_get
select {chain_columns}
  from json_each(:ids) c
 cross join holdfast_job f on f.id = c.value and f.chain_index = 0
 cross join holdfast_job_state t
    on t.id = (select j.id from holdfast_job j where j.chain_id = f.id order by j.chain_index desc limit 1);

-- name: chain_walk
-- The newest chains before an id; 'g' follows every id.
select chain_id
  from holdfast_job
 where chain_index = 0 and chain_id < coalesce(:before, 'g')
 order by chain_id desc
 limit :limit;

-- name: chain_walk_blocker
-- The same of those with a job that waits, or waited, for one chain.
select distinct j.chain_id
  from holdfast_blocker b join holdfast_job j on j.id = b.job_id
 where b.chain_id = :blocker and j.chain_id < coalesce(:before, 'g')
 order by j.chain_id desc
 limit :limit;

-- name: chain_list
-- Those of these chains that fit, the newest first; every filter is optional. Types are matched by a glob because LIKE does
-- not tell upper from lower case here.
select {chain_columns}
  from holdfast_job f
 cross join holdfast_job_state t
    on t.id = (select j.id from holdfast_job j where j.chain_id = f.id order by j.chain_index desc limit 1)
 where f.chain_index = 0
   and f.id in (select value from json_each(:ids))
   and (:states is null or t.state in (select value from json_each(:states)))
   and (:types is null or f.type in (select value from json_each(:types)))
   and (:type_glob is null or f.type glob :type_glob)
   and (:chain is null or f.id = :chain)
   and (:blocker is null or f.id in (
         select w.chain_id from holdfast_blocker b join holdfast_job w on w.id = b.job_id where b.chain_id = :blocker))
   and (:key is null or f.key = :key)
   and (:key_glob is null or f.key glob :key_glob)
   and (:error_like is null or t.error like :error_like escape '\')
   and (:fingerprint is null or t.fingerprint = :fingerprint)
   and (:worker is null or t.locked_by = :worker)
   and (:step is null or exists (select 1 from holdfast_step s where s.job_id = t.id and s.name = :step))
   and (:context is null or not exists (
         select 1 from json_each(:context) e
          where not exists (
            select 1 from holdfast_job_context c
             where c.name = e.key and c.value = e.value and c.job_id = f.id)))
   and (:waiting is null or exists (
         select 1 from holdfast_step s cross join holdfast_queue w on w.job_id = s.job_id
          where s.job_id = t.id and s.state = 'open' and s.kind = 'wait' and s.signal = :waiting))
   and (:attempt_min is null or t.attempt >= :attempt_min)
   and (:attempt_max is null or t.attempt <= :attempt_max)
   and (:age_min_ms is null or f.created_at <= {now} - :age_min_ms * 1000)
   and (:age_max_ms is null or f.created_at >= {now} - :age_max_ms * 1000)
   and (:words is null or not exists (
         select 1 from json_each(:words)
          where f.type || char(10) || coalesce(f.key, '') || char(10) || coalesce(t.error, '') || char(10) || f.id
                not like value escape '\'))
 order by f.id desc
 limit :limit;

-- name: chain_jobs
-- The newest first: a chain that continues for years is read from its end.
select {job_columns}
  from holdfast_job_state
 where chain_id = :chain
 order by chain_index desc
 limit coalesce(:limit, -1);

-- name: chain_references
-- Which open jobs outside these chains wait for them.
select b.chain_id, b.job_id, j.chain_id
  from holdfast_blocker b cross join holdfast_job j on j.id = b.job_id
 where b.chain_id in (select value from json_each(:chains)) and b.open = 1
   and j.chain_id not in (select value from json_each(:chains))
 order by b.chain_id, b.job_id;

-- name: chain_blockers
-- The chains that any job of these chains waits or waited for: the way down of a cascade.
select distinct b.chain_id
  from holdfast_job j cross join holdfast_blocker b on b.job_id = j.id
 where j.chain_id in (select value from json_each(:chains));

-- name: chain_delete_queue
delete from holdfast_queue
 where job_id in (select id from holdfast_job where chain_id in (select value from json_each(:chains)))
returning type, priority, gate;

-- name: chain_delete_outcomes
delete from holdfast_outcome
 where job_id in (select id from holdfast_job where chain_id in (select value from json_each(:chains)))
returning type, state, gate, fanned_out;

-- name: chain_delete_failing
delete from holdfast_failing
 where job_id in (select id from holdfast_job where chain_id in (select value from json_each(:chains)));

-- name: chain_delete_attempts
delete from holdfast_attempt
 where job_id in (select id from holdfast_job where chain_id in (select value from json_each(:chains)));

-- name: chain_delete_progress
delete from holdfast_progress
 where job_id in (select id from holdfast_job where chain_id in (select value from json_each(:chains)));

-- name: chain_delete_revisions
delete from holdfast_revision
 where job_id in (select id from holdfast_job where chain_id in (select value from json_each(:chains)));

-- name: chain_delete_steps
delete from holdfast_step
 where job_id in (select id from holdfast_job where chain_id in (select value from json_each(:chains)));

-- name: chain_delete_output
delete from holdfast_output where chain_id in (select value from json_each(:chains));

-- name: chain_delete_blockers
delete from holdfast_blocker
 where job_id in (select id from holdfast_job where chain_id in (select value from json_each(:chains)));

-- name: chain_delete_keys
delete from holdfast_chain_key
 where (type, key) in (
     select j.type, j.key from holdfast_job j
      where j.chain_id in (select value from json_each(:chains)) and j.chain_index = 0 and j.key is not null)
   and chain_id in (select value from json_each(:chains)) and not (:keep_keys and kept);

-- name: chain_outlive
-- Keys that were claimed with scope any stay when retention takes their chains.
update holdfast_chain_key set gone_at = {now}
 where (type, key) in (
     select j.type, j.key from holdfast_job j
      where j.chain_id in (select value from json_each(:chains)) and j.chain_index = 0 and j.key is not null)
   and chain_id in (select value from json_each(:chains)) and kept;

-- name: chain_delete
-- Removes the jobs of chains after everything that belongs to them; the caller has checked the references.
delete from holdfast_job
 where chain_id in (select value from json_each(:chains))
returning id;

-- name: blocker_insert
insert into holdfast_blocker (job_id, position, chain_id, on_failure, open, step)
select json_extract(value, '$.job_id'), json_extract(value, '$.position'), json_extract(value, '$.chain_id'),
       json_extract(value, '$.on_failure'), 1, json_extract(value, '$.step')
  from json_each(:rows);

-- name: blocker_await
-- Marks the live tails of chains as awaited. A tail that is gone is not returned: the caller reads the chain again and finds a
-- new tail or the end.
update holdfast_queue set awaited = 1
 where job_id in (select value from json_each(:tails))
returning job_id;

-- name: blocker_hold_ended
-- Which tails have ended; the write lock keeps them so.
select o.job_id from json_each(:tails) x cross join holdfast_outcome o on o.job_id = x.value order by o.job_id;

-- name: blocker_lock_ended
-- The ended tails of chains that are about to go; the write lock is held already, so a look is enough.
select o.job_id from json_each(:tails) x cross join holdfast_outcome o on o.job_id = x.value order by o.job_id;

-- name: blocker_dependents
-- The jobs that wait for these chains; the write lock keeps them so until something is decided about them.
select q.job_id from holdfast_queue q
 where q.job_id in (
   select b.job_id from holdfast_blocker b where b.chain_id in (select value from json_each(:chains)) and b.open = 1)
 order by q.job_id;

-- name: blocker_close
-- Closes the edges of ended chains that their policy lets through, and says which of them fail with their chain.
update holdfast_blocker set open = 0
  from (select json_extract(value, '$.chain_id') as chain_id, json_extract(value, '$.state') as state from json_each(:rows)) x
 where holdfast_blocker.chain_id = x.chain_id and holdfast_blocker.open = 1
   and (x.state = 'completed' or holdfast_blocker.on_failure <> 'wait')
returning job_id, chain_id, on_failure = 'fail', step;

-- name: blocker_open_jobs
-- Opens the dependents that have no open edge left.
update holdfast_queue
   set available_at = case when gate is null then
         max(coalesce((select planned_at from holdfast_job where id = holdfast_queue.job_id), 0), {now}) end,
       gate_at = case when gate is not null then
         max(coalesce((select planned_at from holdfast_job where id = holdfast_queue.job_id), 0), {now}) end
 where job_id in (select value from json_each(:ids)) and available_at = 9223372036854775807
   and not exists (select 1 from holdfast_blocker b where b.job_id = holdfast_queue.job_id and b.open)
returning job_id, type, gate;

-- name: blocker_list
select b.job_id, b.position, b.chain_id, b.open, b.on_failure,
       (select t.state from holdfast_job_state t where t.chain_id = b.chain_id order by t.chain_index desc limit 1),
       (select case when t.state = 'completed' then t.output end
          from holdfast_job_state t where t.chain_id = b.chain_id order by t.chain_index desc limit 1),
       (select t.error from holdfast_job_state t where t.chain_id = b.chain_id order by t.chain_index desc limit 1), b.step
  from holdfast_blocker b
 where b.job_id in (select value from json_each(:ids))
 order by b.job_id, b.position;

-- name: blocker_waiting
-- Which jobs wait, or waited, for this chain.
select job_id, position, chain_id, open, on_failure, null, null, null, step
  from holdfast_blocker
 where chain_id = :chain
 order by job_id, position
 limit :limit;

-- name: blocker_dependent_chains
-- Which chains wait for a chain, themselves or through others, and for which of them: a walk along open edges.
with recursive waits (waiting, for_chain) as (
  select j.chain_id, b.chain_id
    from holdfast_blocker b cross join holdfast_job j on j.id = b.job_id
   where b.chain_id = :chain and b.open
  union
  select j.chain_id, b.chain_id
    from waits w
   cross join holdfast_blocker b on b.chain_id = w.waiting and b.open
   cross join holdfast_job j on j.id = b.job_id)
select waiting, for_chain from waits limit :limit;
