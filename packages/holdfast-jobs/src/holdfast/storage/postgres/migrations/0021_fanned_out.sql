-- An event stored before its subscription ends when it is fanned out. By then no handler ran, so it is neither sent nor counted:
-- `fanned_out` says so, and its deliveries say what happened.
alter table holdfast.outcome add column fanned_out boolean;
alter table holdfast.outcome alter column fanned_out set statistics 25;

-- Those of the version before, in batches, which were counted as completed. One row of the tally for each, so that the number of rows
-- says whether there are more.
with marked as (
update holdfast.outcome o
   set fanned_out = true
 where o.job_id = any (array (
   select e.job_id from holdfast.outcome e
    where e.state = 'completed' and e.fanned_out is null and e.attempts = 0 and e.worker is null and e.token is null
      and e.output like '{"delivered":[%' and e.type not like '%/%'
    limit 10000
      for no key update skip locked))
returning o.type, o.finished_at)
insert into holdfast.tally (at, type, started, completed) select finished_at, type, -1, -1 from marked;

create or replace view holdfast.outbox as
select id, type, input as payload, created_at, available_at, attempt as attempts, locked_by, locked_until,
       case state when 'running' then 'PROCESSING' when 'completed' then 'SENT' when 'failed' then 'FAILED'
                  when 'cancelled' then 'CANCELLED' else 'PENDING' end as status,
       case when finished_at is not null then error else (
         select a.error from holdfast.attempt a
          where a.job_id = v.id and a.error is not null order by a.fence desc, a.attempt desc limit 1) end as last_error
  from holdfast.jobs v
 where not exists (select from holdfast.outcome o where o.job_id = v.id and o.fanned_out);
