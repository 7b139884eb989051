-- An event stored before its subscription ends when it is fanned out. By then no handler ran, so it is neither sent nor counted:
-- `fanned_out` says so, and its deliveries say what happened.
alter table holdfast_outcome add column fanned_out integer;

-- Those of the version before, which were counted as completed.
update holdfast_outcome set fanned_out = 1
 where state = 'completed' and attempts = 0 and worker is null and token is null
   and output like '{"delivered":[%' and type not like '%/%';
insert into holdfast_tally (at, type, started, completed)
select finished_at, type, -1, -1 from holdfast_outcome where fanned_out;

drop view holdfast_outbox;
create view holdfast_outbox as
select id, type, input as payload, created_at, available_at, attempt as attempts, locked_by, locked_until,
       case state when 'running' then 'PROCESSING' when 'completed' then 'SENT' when 'failed' then 'FAILED'
                  when 'cancelled' then 'CANCELLED' else 'PENDING' end as status,
       case when finished_at is not null then error else (
         select a.error from holdfast_attempt a
          where a.job_id = v.id and a.error is not null order by a.fence desc, a.attempt desc limit 1) end as last_error
  from holdfast_jobs v
 where not exists (select 1 from holdfast_outcome o where o.job_id = v.id and o.fanned_out);
