-- name: retention_page
-- The next chains by age: ids grow with time, so this is a walk along the primary key. The order names the table, because the
-- output's name means a text, which no index is ordered by. One process of a fleet removes at a time, and the others find
-- nothing meanwhile: together they would take from the claims what each leaves them by its pauses.
select j.id::text from holdfast.job j
 where (select pg_try_advisory_xact_lock(hashtextextended('retention of holdfast.job', 0)))
   and j.id > :after::uuid and j.id < :until::uuid and j.chain_index = 0
 order by j.id
 limit :limit::integer;

-- name: retention_progress
-- From the tally, whose rows of a step bear the step's beginning: what was started up to a step before, less what has been
-- removed since, what failed and what is still waiting; and what was removed lately.
select greatest(0, coalesce(sum(t.started) filter (where t.at <= to_timestamp(:until_step::bigint / 1000000.0)), 0)
                   - coalesce(sum(t.removed + t.failed), 0)
                   - (select count(*) from (select from holdfast.queue q where q.job_id < :until::uuid limit :limit::integer) w))::bigint,
       coalesce(sum(t.removed) filter (where t.at > to_timestamp(:since::bigint / 1000000.0)), 0)::bigint
  from holdfast.tally t;

-- name: retention_dead_page
-- The next failed jobs by age, along the index of what did not complete.
select o.job_id::text, j.chain_id::text
  from holdfast.outcome o
  join holdfast.job j on j.id = o.job_id
 where o.state in ('failed', 'cancelled') and o.state = 'failed' and o.job_id > :after::uuid and o.job_id < :until::uuid
 order by o.job_id
 limit :limit::integer;

-- name: retention_hold
-- Of these chains, those that ended long enough ago and whose key no longer counts; their last outcome is held against a
-- redrive and a new waiter. What another transaction holds is left for another time.
select j.id::text
  from holdfast.job j
 cross join lateral (select t.id from holdfast.job t where t.chain_id = j.id order by t.chain_index desc limit 1) tail
  join holdfast.outcome o on o.job_id = tail.id
 where j.id = any (array (select i::uuid from json_array_elements_text(:chains::json) i))
   and not o.continued
   and o.finished_at < to_timestamp(case when o.state = 'failed' then :dead_before::bigint else :before::bigint end / 1000000.0)
   and not exists (
     select from holdfast.chain_key k
      where k.type = j.type and k.key = j.key and k.chain_id = j.id and k.until > holdfast.moment(:now::bigint))
 order by o.job_id
   for update of o skip locked;

-- name: retention_types
select id::text, type from holdfast.job
 where id = any (array (select i::uuid from json_array_elements_text(:chains::json) i));

-- name: retention_waited
-- Of these chains, those whose results a live job waits for or may still read.
select distinct b.chain_id::text
  from holdfast.blocker b join holdfast.queue q on q.job_id = b.job_id
 where b.chain_id = any (array (select i::uuid from json_array_elements_text(:chains::json) i));

-- name: retention_runs
delete from holdfast.worker_runs where id = any (array (
  select id from holdfast.worker_runs where id < :until::uuid order by id limit :limit::integer))
returning 1;

-- name: retention_slots
-- A slot that is forgotten is not run again: the cycle's last slot lies after it.
delete from holdfast.cycle_slot where (cycle, slot) in (
  select cycle, slot from holdfast.cycle_slot
   where state in ('completed', 'failed') and finished_at < to_timestamp(:before::bigint / 1000000.0)
   limit :limit::integer)
returning 1;

-- name: retention_workers
delete from holdfast.worker where id = any (array (
  select id from holdfast.worker where stopped_at < to_timestamp(:before::bigint / 1000000.0) limit :limit::integer))
returning 1;

-- name: retention_redrive_jobs
-- Of redrives that began so early that their dead letters are gone.
delete from holdfast.redrive_job where job_id = any (array (
  select job_id from holdfast.redrive_job where redrive_id < :until::uuid limit :limit::integer))
returning 1;

-- name: retention_redrives
delete from holdfast.redrive where id < :until::uuid returning 1;

-- name: retention_keys
delete from holdfast.chain_key where (type, key) in (
  select type, key from holdfast.chain_key
   where gone_at < to_timestamp(:before::bigint / 1000000.0) order by gone_at limit :limit::integer)
returning 1;

-- name: retention_signals
delete from holdfast.signal where id = any (array (
  select id from holdfast.signal where until < holdfast.moment(:now::bigint) limit :limit::integer))
returning 1;

-- name: retention_archived
-- When an archive last verified ended chains: those that it has not verified yet must stay.
select holdfast.us(max(verified_at)) from holdfast.archive_manifest where source = 'jobs';
