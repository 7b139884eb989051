-- When a live job is given up if it has not begun. Few have such a time, so the index is of those; a claim changes neither.
alter table holdfast_queue add column expires_at integer;
create index holdfast_queue_expiry on holdfast_queue (expires_at) where expires_at is not null;

drop view holdfast_job_state;
create view holdfast_job_state as
select j.id, j.chain_id, j.chain_index, j.type,
       case
         when o.job_id is not null then o.state
         when q.token is not null then 'running'
         when q.available_at = 9223372036854775807 then 'blocked'
         when q.job_id is not null then 'pending'
       end as state,
       j.priority, j.input, j.key, j.trace, j.created_at, j.planned_at,
       case when q.gate_at is null then nullif(q.available_at, 9223372036854775807)
            else max(q.gate_at, coalesce(q.rests_until, 0)) end as available_at,
       coalesce(q.attempt, o.attempts, 0) as attempt, coalesce(q.max_attempts, j.max_attempts) as max_attempts,
       coalesce(q.crashes, o.crashes, 0) as crashes, coalesce(q.fence, o.fence, 0) as fence,
       coalesce(l.worker, o.worker) as locked_by, l.expires_at as locked_until,
       o.output, o.error, o.fingerprint, coalesce(o.continued, 0) as continued,
       coalesce(o.started_at, l.claimed_at) as started_at, o.finished_at, coalesce(j.version, 1) as version,
       q.expires_at
  from holdfast_job j
  left join holdfast_queue q on q.job_id = j.id
  left join holdfast_lease l on l.token = q.token
  left join holdfast_outcome o on o.job_id = j.id;

drop view holdfast_jobs;
create view holdfast_jobs as
select id, chain_id, chain_index, type, state, priority, input, key, trace,
       strftime('%Y-%m-%dT%H:%M:%fZ', created_at / 1000000.0, 'unixepoch') as created_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', planned_at / 1000000.0, 'unixepoch') as planned_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', available_at / 1000000.0, 'unixepoch') as available_at,
       attempt, max_attempts, crashes, fence, locked_by,
       strftime('%Y-%m-%dT%H:%M:%fZ', locked_until / 1000000.0, 'unixepoch') as locked_until,
       output, error, fingerprint, continued,
       strftime('%Y-%m-%dT%H:%M:%fZ', started_at / 1000000.0, 'unixepoch') as started_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', finished_at / 1000000.0, 'unixepoch') as finished_at,
       version, strftime('%Y-%m-%dT%H:%M:%fZ', expires_at / 1000000.0, 'unixepoch') as expires_at
  from holdfast_job_state;
