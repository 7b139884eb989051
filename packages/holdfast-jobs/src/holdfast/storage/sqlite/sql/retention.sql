-- name: retention_page
-- The next chains by age: ids grow with time, so this is a walk along the primary key.
select id from holdfast_job
 where id > :after and id < :until and chain_index = 0
 order by id
 limit :limit;

-- name: retention_progress
-- From the tally, whose rows of a step bear the step's beginning: what was started up to a step before, less what has been
-- removed since, what failed and what is still waiting; and what was removed lately.
select max(0, coalesce(sum(t.started) filter (where t.at <= :until_step), 0)
              - coalesce(sum(t.removed + t.failed), 0)
              - (select count(*) from (select 1 from holdfast_queue q where q.job_id < :until limit :limit))),
       coalesce(sum(t.removed) filter (where t.at > :since), 0)
  from holdfast_tally t;

-- name: retention_dead_page
-- The next failed jobs by age. By itself SQLite would take the index that begins with the state, and sort.
select o.job_id, j.chain_id
  from holdfast_outcome o indexed by holdfast_outcome_not_completed_id
 cross join holdfast_job j on j.id = o.job_id
 where o.state in ('failed', 'cancelled') and o.state = 'failed' and o.job_id > :after and o.job_id < :until
 order by o.job_id
 limit :limit;

-- name: retention_hold
-- Of these chains, those that ended long enough ago and whose key no longer counts. The write transaction keeps others away.
select j.id
  from json_each(:chains) c
 cross join holdfast_job j on j.id = c.value
 cross join holdfast_outcome o
    on o.job_id = (select t.id from holdfast_job t where t.chain_id = j.id order by t.chain_index desc limit 1)
 where not o.continued
   and o.finished_at < case when o.state = 'failed' then :dead_before else :before end
   and not exists (
     select 1 from holdfast_chain_key k
      where k.type = j.type and k.key = j.key and k.chain_id = j.id and k.until > {now})
 order by o.job_id;

-- name: retention_types
select id, type from holdfast_job where id in (select value from json_each(:chains));

-- name: retention_waited
-- Of these chains, those whose results a live job waits for or may still read.
select distinct b.chain_id
  from json_each(:chains) c
 cross join holdfast_blocker b on b.chain_id = c.value
 cross join holdfast_queue q on q.job_id = b.job_id;

-- name: retention_runs
delete from holdfast_worker_runs where id in (
  select id from holdfast_worker_runs where id < :until order by id limit :limit)
returning 1;

-- name: retention_slots
-- A slot that is forgotten is not run again: the cycle's last slot lies after it.
delete from holdfast_cycle_slot where (cycle, slot) in (
  select cycle, slot from holdfast_cycle_slot where state in ('completed', 'failed') and finished_at < :before limit :limit)
returning 1;

-- name: retention_workers
delete from holdfast_worker where id in (
  select id from holdfast_worker where stopped_at < :before limit :limit)
returning 1;

-- name: retention_redrive_jobs
-- Of redrives that began so early that their dead letters are gone.
delete from holdfast_redrive_job where job_id in (
  select job_id from holdfast_redrive_job where redrive_id < :until limit :limit)
returning 1;

-- name: retention_redrives
delete from holdfast_redrive where id < :until returning 1;

-- name: retention_keys
delete from holdfast_chain_key where (type, key) in (
  select type, key from holdfast_chain_key where gone_at < :before order by gone_at limit :limit)
returning 1;

-- name: retention_signals
delete from holdfast_signal where id in (select id from holdfast_signal where until < {now} limit :limit)
returning 1;

-- name: retention_archived
-- When an archive last verified ended chains: those that it has not verified yet must stay.
select max(verified_at) from holdfast_archive_manifest where source = 'jobs';
