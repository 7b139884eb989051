-- What a job was started in, such as its tenant, user and locale: an object of strings. Jobs without one have none.
alter table holdfast.job add column context text;
alter table holdfast.job alter column context set statistics 25;

-- The same by name and value, so that lists find the jobs of a tenant, the newest first. Triggers write it: jobs are written by
-- many statements, and for those without a context none of them does more than look at a null.
create table holdfast.job_context (
  name          text collate "C" not null,
  value         text collate "C" not null,
  job_id        uuid not null,
  primary key (name, value, job_id)
);

create function holdfast.index_context() returns trigger
  language plpgsql
  as $$
begin
  if tg_op operator(pg_catalog.=) 'INSERT' then
    insert into holdfast.job_context (name, value, job_id)
    select e.key, e.value, new.id from pg_catalog.json_each_text(new.context::pg_catalog.json) e;
  else
    delete from holdfast.job_context c using pg_catalog.json_each_text(old.context::pg_catalog.json) e
     where c.name operator(pg_catalog.=) e.key and c.value operator(pg_catalog.=) e.value
       and c.job_id operator(pg_catalog.=) old.id;
  end if;
  return null;
end
$$;

create trigger job_context_added after insert on holdfast.job
  for each row when (new.context is not null) execute function holdfast.index_context();

create trigger job_context_removed after delete on holdfast.job
  for each row when (old.context is not null) execute function holdfast.index_context();

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
       q.expires_at, j.context
  from holdfast.job j
  left join holdfast.queue q on q.job_id = j.id
  left join holdfast.lease l on l.token = q.token
  left join holdfast.outcome o on o.job_id = j.id;
