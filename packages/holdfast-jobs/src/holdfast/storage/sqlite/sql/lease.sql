-- name: lease_renew
-- Extends leases by token. What is not returned has been reaped. An expired lease that nobody reaped yet may be renewed:
-- nobody else can have its token.
update holdfast_lease
   set expires_at = {now} + lease_ms * 1000
 where token in (select value from json_each(:tokens))
returning token;

-- name: lease_heal
-- Leases that end later than they can by the present clock were given by one that ran ahead: they begin again now.
update holdfast_lease
   set expires_at = :now + lease_ms * 1000
 where expires_at > :now + lease_ms * 1000 + 60000000
returning token;

-- name: revision_heal
-- What debounced jobs were asked for by a clock that ran ahead was asked for now.
update holdfast_revision set at = :now where at > :now + 60000000;

-- name: limit_heal
-- Pauses that began by a clock that ran ahead begin now.
update holdfast_limit_setting
   set rests_until = :now + rests_until - changed_at, changed_at = :now
 where rests_until is not null and changed_at > :now + 60000000;

-- name: step_heal
-- What functions began to wait for by a clock that ran ahead ends as long from now as it was to last. A time that the code named stays:
-- it is the argument of its sleep.
update holdfast_step indexed by holdfast_step_open
   set until = :now + until - started_at, started_at = :now
 where state = 'open' and until is not null and arguments is null and started_at > :now + 60000000;

-- name: queue_page
select job_id from holdfast_queue where job_id > :after order by job_id limit 1000;

-- name: queue_heal
-- A job that never ran is due from the moment it was made or unblocked, one that failed waits from the end of that attempt,
-- one that was snoozed from about its claim, whose time its fence tells; one that was reaped at its place was due before
-- that. Where that moment is yet to come, a clock ran ahead:
-- the job is due now, or as long from now as it was to wait. What was planned stays. One that waits for quiet is due now, and
-- put off by those who take it. Jobs in a queue are moved there, an ordered one keeps waiting at its place; their partitions are
-- polled afterwards.
update holdfast_queue
   set available_at = case when gate is null then healed.due_at end,
       gate_at = case when gate is null then null when {is_ordered} then min(gate_at, :now) else healed.due_at end,
       rests_until = case when {is_ordered} then min(rests_until, healed.due_at) end
  from (
    select job_id, known_at,
           case when fence = 0 and debounced and created_at > :now + 60000000 then :now
                when fence = 0 then max(coalesce(planned_at, 0), :now)
                when known_at = created_at then :now
                when since > :now + 60000000 and (was_reaped or known_at >= since) then :now + max(known_at - since, 0) end as due_at
      from (
        select q.job_id, j.planned_at, j.created_at, {is_debounced} as debounced, q.fence,
               case when q.gate_at is null then q.available_at else max(q.gate_at, coalesce(q.rests_until, 0)) end as known_at,
               coalesce((select max(a.ended_at) from holdfast_attempt a where a.job_id = q.job_id and a.fence = q.fence),
                        q.fence * 1000) as since,
               exists (select 1 from holdfast_attempt a where a.job_id = q.job_id and a.fence = q.fence and a.kind = 'reap') as was_reaped
          from holdfast_queue q join holdfast_job j on j.id = q.job_id
         where q.job_id in (select value from json_each(:ids)) and q.token is null) dated
     where known_at < 9223372036854775807 and known_at > :now + 60000000) healed
 where holdfast_queue.job_id = healed.job_id and healed.due_at < healed.known_at
returning job_id;

-- name: lease_held
-- Every job that bears a token of this worker, whether the worker knows of it or not.
select q.job_id, q.token
  from holdfast_lease l
 cross join json_each(l.job_ids) j
 cross join holdfast_queue q on q.job_id = j.value and q.token = l.token
 where l.worker = :worker;

-- name: lease_free
-- Removes leases whose jobs have all ended; one that still names a held job stays.
delete from holdfast_lease
 where token in (select value from json_each(:tokens))
   and not exists (
     select 1 from json_each(holdfast_lease.job_ids) j cross join holdfast_queue q on q.job_id = j.value
      where q.token = holdfast_lease.token);

-- name: lease_drop
delete from holdfast_lease where token in (select value from json_each(:tokens));

-- name: lease_release
-- Gives back every job of these claims, attempts refunded: for a claim whose answer was lost, and for a drain.
-- `lease_drop` follows.
update holdfast_queue set token = null, attempt = attempt - 1
 where job_id in (
     select j.value from holdfast_lease l cross join json_each(l.job_ids) j
      where l.token in (select value from json_each(:tokens)))
   and token in (select value from json_each(:tokens))
returning job_id, type, gate;

-- name: lease_reap
-- Expired leases, oldest first, all types.
select l.token, l.expires_at
  from holdfast_lease l
 where l.expires_at <= :now and (l.expires_at, l.token) > (coalesce(:after, -1), coalesce(:after_token, ''))
 order by l.expires_at, l.token
 limit :limit;

-- name: lease_reap_jobs
-- What these leases still hold, and what becomes of it: the instant of the next try, none where the job is poisoned or spent. The
-- first death of a worker is rarely a job's fault: the job keeps its place and is due at once; after another it waits. A job is
-- poison only by a death in which it ran alone: any other may be a neighbour's fault.
with bearing as (
  select q.job_id, q.token, q.type, q.attempt, q.fence, q.awaited, q.crashes, q.available_at, q.gate_at, q.rests_until, l.worker, l.alone, l.claimed_at, l.backoff_base_ms, l.backoff_cap_ms,
         (:now - l.expires_at + 500) / 1000 as stale_ms, coalesce(q.max_attempts, l.max_attempts) as max_attempts,
         l.alone and q.crashes + 1 >= :poison as poisoned
    from holdfast_lease l
   cross join json_each(l.job_ids) j
   cross join holdfast_queue q on q.job_id = j.value and q.token = l.token
   where l.token in (select value from json_each(:tokens)))
select job_id, token, type, worker, attempt, fence, awaited, crashes + 1, claimed_at, stale_ms, alone, poisoned,
       case when poisoned or (max_attempts > 0 and attempt >= max_attempts) then null
            when crashes = 0 then coalesce(rests_until, gate_at, available_at)
            else :now + min(backoff_cap_ms, backoff_base_ms * (1 << (min(crashes, 20) - 1))) * 1000 end
  from bearing;

-- name: lease_reap_fail
-- Writes the outcomes of jobs that no further attempt is given; rows are [id, crashes, worker, started_at, error, fingerprint].
-- `queue_drop` follows.
insert into holdfast_outcome (job_id, type, state, error, fingerprint, attempts, crashes, fence, worker, started_at, finished_at, gate, gate_at)
select q.job_id, q.type, 'failed', json_extract(x.value, '$[4]'), json_extract(x.value, '$[5]'), q.attempt, json_extract(x.value, '$[1]'),
       q.fence, json_extract(x.value, '$[2]'), json_extract(x.value, '$[3]'), :now, q.gate,
       case when {is_ordered} then q.gate_at end
  from json_each(:rows) x cross join holdfast_queue q on q.job_id = json_extract(x.value, '$[0]');

-- name: lease_reap_return
-- Takes jobs back into the queue; rows are [id, crashes, available_at].
update holdfast_queue
   set token = null, woken = null, crashes = x.crashes,
       available_at = case when gate is null then x.available_at end,
       gate_at = case when gate is null or {is_ordered} then gate_at else x.available_at end,
       rests_until = case when {is_ordered} then x.available_at end
  from (select json_extract(value, '$[0]') as id, json_extract(value, '$[1]') as crashes, json_extract(value, '$[2]') as available_at
          from json_each(:rows)) x
 where holdfast_queue.job_id = x.id;

-- name: lease_evict
-- There is no server to end it: a transaction that has the file's write lock keeps the reaper out as well.
select :rows where false;

-- name: lease_isolate
-- Notes, before its only job begins, that the worker runs nothing else.
update holdfast_lease set alone = 1 where token = :token returning token;

-- name: lease_list
-- With how many jobs each still holds: a lease names what was claimed until all of it has ended.
select l.token, l.worker, l.claimed_at, l.expires_at,
       (select count(*) from json_each(l.job_ids) j cross join holdfast_queue q on q.job_id = j.value and q.token = l.token)
  from holdfast_lease l
 where :worker is null or l.worker = :worker
 order by l.expires_at, l.token
 limit :limit;

-- name: lease_guard
-- There is no server to end it: a process that is stopped here keeps the file's write lock until it goes on or dies.
select :idle_ms;

-- name: progress_put
-- How far attempts are, proven by their tokens.
insert into holdfast_progress (job_id, fence, fraction, note, at)
select q.job_id, q.fence, json_extract(x.value, '$.fraction'), json_extract(x.value, '$.note'),
       {now}
  from json_each(:rows) x
 cross join holdfast_queue q on q.job_id = json_extract(x.value, '$.id') and q.token = json_extract(x.value, '$.token')
 where true
on conflict (job_id) do update
   set fence = excluded.fence, fraction = excluded.fraction, note = excluded.note, at = excluded.at
 where fence <= excluded.fence;

-- name: progress_drop
delete from holdfast_progress
 where exists (
     select 1 from json_each(:rows) x
      where json_extract(x.value, '$.id') = holdfast_progress.job_id and json_extract(x.value, '$.fence') >= holdfast_progress.fence);

-- name: progress_get
select p.job_id, p.fence, p.fraction, p.note, p.at
  from json_each(:ids) x
 cross join holdfast_progress p on p.job_id = x.value
 cross join holdfast_queue q on q.job_id = p.job_id and q.fence = p.fence and q.token is not null
 order by p.job_id;
