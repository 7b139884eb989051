-- What a job was started in, such as its tenant, user and locale: an object of strings. Jobs without one have none.
alter table holdfast_job add column context text;

-- The same by name and value, so that lists find the jobs of a tenant, the newest first. Triggers write it: jobs are written by
-- many statements, and for those without a context none of them does more than look at a null.
create table holdfast_job_context (
  name          text not null,
  value         text not null,
  job_id        text not null,
  primary key (name, value, job_id)
) without rowid;

create trigger holdfast_job_context_added after insert on holdfast_job when new.context is not null
begin
  insert into holdfast_job_context (name, value, job_id) select key, value, new.id from json_each(new.context);
end;

create trigger holdfast_job_context_removed after delete on holdfast_job when old.context is not null
begin
  delete from holdfast_job_context
   where (name, value, job_id) in (select key, value, old.id from json_each(old.context));
end;

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
       q.expires_at, j.context
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
       version, strftime('%Y-%m-%dT%H:%M:%fZ', expires_at / 1000000.0, 'unixepoch') as expires_at, context
  from holdfast_job_state;
