-- name: redrive_add
-- Failed jobs that are to be redriven; one that another redrive had before it came to its turn is now this one's.
insert into holdfast_redrive_job (job_id, redrive_id, type)
select o.job_id, :id, o.type
  from holdfast_outcome o
 where o.job_id in (select value from json_each(:ids)) and o.state = 'failed'
 order by o.job_id
on conflict (job_id) do update set redrive_id = excluded.redrive_id, taken = 0
returning job_id, type;

-- name: redrive_begin
insert into holdfast_redrive (id, spacing_us, next_at)
values (:id, :spacing_us, {now})
on conflict (id) do nothing;

-- name: redrive_forget
delete from holdfast_redrive_job
 where job_id in (select value from json_each(:ids)) and taken = 0;

-- name: redrive_list
select r.id, r.spacing_us,
       (select count(*) from holdfast_redrive_job j where j.redrive_id = r.id and j.taken = 0)
  from holdfast_redrive r
 where :job_id is null
    or r.id = (select j.redrive_id from holdfast_redrive_job j where j.job_id = :job_id and j.taken = 0)
 order by r.id;

-- name: redrive_find
select r.id
  from holdfast_redrive r
 where exists (
   select 1 from holdfast_redrive_job j
    where j.redrive_id = r.id and j.taken = 0
      and j.type in (select value from json_each(:types)))
 order by r.id;

-- name: redrive_lock
select r.id, r.spacing_us, r.next_at, {now}
  from holdfast_redrive r where r.id = :id;

-- name: redrive_started
-- What was taken and no longer waits for its first attempt is done with.
delete from holdfast_redrive_job as j
 where j.redrive_id = :id and j.taken = 1
   and not exists (select 1 from holdfast_queue q where q.job_id = j.job_id and q.token is null and q.attempt = 0);

-- name: redrive_waiting
select count(*) from holdfast_redrive_job where redrive_id = :id and taken = 1;

-- name: redrive_take
update holdfast_redrive_job set taken = 1
 where job_id in (
   select j.job_id from holdfast_redrive_job j
    where j.redrive_id = :id and j.taken = 0
      and j.type in (select value from json_each(:types))
    order by j.job_id
    limit :limit)
returning job_id;

-- name: redrive_advance
update holdfast_redrive set next_at = :next_at where id = :id;

-- name: redrive_end
delete from holdfast_redrive as r
 where r.id = :id and not exists (select 1 from holdfast_redrive_job j where j.redrive_id = r.id and j.taken = 0)
returning id;

-- name: redrive_clear
delete from holdfast_redrive_job where redrive_id = :id;
