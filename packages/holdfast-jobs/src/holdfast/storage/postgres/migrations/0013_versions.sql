-- Inputs have versions: null is 1, so that a job of an unversioned type is stored as before.
alter table holdfast.job add column version smallint;
alter table holdfast.revision add column version smallint;

-- Jobs whose input the code of some worker could not read. They stay in the queue; a worker with other code looks here first.
create table holdfast.unreadable (
  job_id        uuid primary key,
  type          text not null,
  error         text not null,
  at            timestamptz not null
);

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
       coalesce(o.started_at, l.claimed_at) as started_at, o.finished_at, coalesce(j.version, 1::smallint) as version
  from holdfast.job j
  left join holdfast.queue q on q.job_id = j.id
  left join holdfast.lease l on l.token = q.token
  left join holdfast.outcome o on o.job_id = j.id;
