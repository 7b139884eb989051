-- name: redrive_add
-- Failed jobs that are to be redriven; one that another redrive had before it came to its turn is now this one's.
insert into holdfast.redrive_job (job_id, redrive_id, type)
select o.job_id, :id::uuid, o.type
  from holdfast.outcome o
 where o.job_id = any (array (select i::uuid from json_array_elements_text(:ids::json) i)) and o.state = 'failed'
 order by o.job_id
on conflict (job_id) do update set redrive_id = excluded.redrive_id, taken = false
returning job_id::text, type;

-- name: redrive_begin
insert into holdfast.redrive (id, spacing_us, next_at)
values (:id::uuid, :spacing_us::bigint, holdfast.moment(:now::bigint))
on conflict (id) do nothing;

-- name: redrive_forget
delete from holdfast.redrive_job
 where job_id = any (array (select i::uuid from json_array_elements_text(:ids::json) i)) and not taken;

-- name: redrive_list
select r.id::text, r.spacing_us,
       (select count(*) from holdfast.redrive_job j where j.redrive_id = r.id and not j.taken)
  from holdfast.redrive r
 where :job_id::uuid is null
    or r.id = (select j.redrive_id from holdfast.redrive_job j where j.job_id = :job_id::uuid and not j.taken)
 order by r.id;

-- name: redrive_find
select r.id::text
  from holdfast.redrive r
 where exists (
   select from holdfast.redrive_job j
    where j.redrive_id = r.id and not j.taken
      and j.type = any (array (select t from json_array_elements_text(:types::json) t)))
 order by r.id;

-- name: redrive_lock
-- One that another worker continues at this moment is left to it.
select r.id::text, r.spacing_us, holdfast.us(r.next_at), holdfast.us(holdfast.moment(:now::bigint))
  from holdfast.redrive r where r.id = :id::uuid
   for update skip locked;

-- name: redrive_started
-- What was taken and no longer waits for its first attempt is done with.
delete from holdfast.redrive_job j
 where j.redrive_id = :id::uuid and j.taken
   and not exists (select from holdfast.queue q where q.job_id = j.job_id and q.token is null and q.attempt = 0);

-- name: redrive_waiting
select count(*) from holdfast.redrive_job where redrive_id = :id::uuid and taken;

-- name: redrive_take
update holdfast.redrive_job set taken = true
 where job_id = any (array (
   select j.job_id from holdfast.redrive_job j
    where j.redrive_id = :id::uuid and not j.taken
      and j.type = any (array (select t from json_array_elements_text(:types::json) t))
    order by j.job_id
    limit :limit::integer))
returning job_id::text;

-- name: redrive_advance
update holdfast.redrive set next_at = to_timestamp(:next_at::bigint / 1000000.0) where id = :id::uuid;

-- name: redrive_end
delete from holdfast.redrive r
 where r.id = :id::uuid and not exists (select from holdfast.redrive_job j where j.redrive_id = r.id and not j.taken)
returning r.id::text;

-- name: redrive_clear
delete from holdfast.redrive_job where redrive_id = :id::uuid;
