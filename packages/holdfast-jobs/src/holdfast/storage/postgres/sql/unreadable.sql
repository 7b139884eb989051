-- name: unreadable_note
insert into holdfast.unreadable as u (job_id, type, error, at)
values (:id::uuid, :type, :error, holdfast.moment(:now::bigint))
on conflict (job_id) do update set error = excluded.error
returning holdfast.us(holdfast.moment(:now::bigint)) - holdfast.us(u.at);

-- name: unreadable_since
select holdfast.us(u.at) from holdfast.unreadable u where u.job_id = :id::uuid;

-- name: unreadable_page
-- A job waits here while it is live and nobody holds it; an ended or deleted one is only to be forgotten.
select u.job_id::text, u.type, u.error, holdfast.us(u.at), q.job_id is not null, j.version, j.input
  from holdfast.unreadable u
  left join holdfast.job j on j.id = u.job_id
  left join holdfast.queue q on q.job_id = u.job_id
 where u.type = any (array (select t from json_array_elements_text(:types::json) t)) and u.job_id > :after::uuid
 order by u.job_id
 limit :limit::integer;

-- name: unreadable_forget
delete from holdfast.unreadable where job_id = any (array (select i::uuid from json_array_elements_text(:ids::json) i));

-- name: unreadable_count
-- Each is looked up by its key: joined as whole tables, a plan made while they were small reads the queue.
select count(*)
  from (select 1
          from holdfast.unreadable u
         cross join lateral (select 1 from holdfast.queue w where w.job_id = u.job_id offset 0) q
         limit :limit::integer) x;

-- name: unreadable_groups
-- The error of a missing key names it, and is the same for all jobs that wait for it.
select u.type, count(*), holdfast.us(min(u.at)), k.missing
  from holdfast.unreadable u join holdfast.queue q on q.job_id = u.job_id
 cross join lateral (select case when u.error like 'sealed with the key %' then u.error end as missing) k
 group by u.type, k.missing
 order by u.type, k.missing;
