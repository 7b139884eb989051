-- When a live job is given up if it has not begun. Few have such a time, so the index is of those; a claim changes neither.
alter table holdfast.queue add column expires_at timestamptz;
create index queue_expiry on holdfast.queue (expires_at) where expires_at is not null;

create or replace view holdfast.jobs as
select j.id, j.chain_id, j.chain_index, j.type,
       case
         when o.job_id is not null then o.state
         when q.token is not null then 'running'
         when q.available_at = 'infinity' then 'blocked'
         when q.job_id is not null then 'pending'
       end as state,
       j.priority, j.input, j.key, j.trace, j.created_at, j.planned_at,
       case when q.gate_at is null then q.available_at else greatest(q.gate_at, q.rests_until) end as available_at,
       coalesce(q.attempt, o.attempts, 0) as attempt, coalesce(q.max_attempts, j.max_attempts) as max_attempts,
       coalesce(q.crashes, o.crashes, 0) as crashes, coalesce(q.fence, o.fence, 0) as fence,
       coalesce(l.worker, o.worker) as locked_by, l.expires_at as locked_until,
       o.output, o.error, o.fingerprint, coalesce(o.continued, false) as continued,
       coalesce(o.started_at, l.claimed_at) as started_at, o.finished_at, coalesce(j.version, 1::smallint) as version,
       q.expires_at
  from holdfast.job j
  left join holdfast.queue q on q.job_id = j.id
  left join holdfast.lease l on l.token = q.token
  left join holdfast.outcome o on o.job_id = j.id;
