-- name: unreadable_note
insert into holdfast_unreadable (job_id, type, error, at)
values (:id, :type, :error, {now})
on conflict (job_id) do update set error = excluded.error
returning {now} - at;

-- name: unreadable_since
select at from holdfast_unreadable where job_id = :id;

-- name: unreadable_page
-- A job waits here while it is live and nobody holds it; an ended or deleted one is only to be forgotten.
select u.job_id, u.type, u.error, u.at, q.job_id is not null, j.version, j.input
  from holdfast_unreadable u
  left join holdfast_job j on j.id = u.job_id
  left join holdfast_queue q on q.job_id = u.job_id
 where u.type in (select value from json_each(:types)) and u.job_id > :after
 order by u.job_id
 limit :limit;

-- name: unreadable_forget
delete from holdfast_unreadable where job_id in (select value from json_each(:ids));

-- name: unreadable_count
select count(*)
  from (select 1 from holdfast_unreadable u cross join holdfast_queue q on q.job_id = u.job_id limit :limit);

-- name: unreadable_groups
-- The error of a missing key names it, and is the same for all jobs that wait for it.
select u.type, count(*), min(u.at), case when u.error like 'sealed with the key %' then u.error end as missing
  from holdfast_unreadable u cross join holdfast_queue q on q.job_id = u.job_id
 group by u.type, missing
 order by u.type, missing is null, missing;
