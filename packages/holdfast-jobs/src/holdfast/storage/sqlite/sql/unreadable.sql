-- name: unreadable_note
insert into holdfast_unreadable (job_id, type, error, at)
values (:id, :type, :error, {now})
on conflict (job_id) do update set error = excluded.error
returning {now} - at;

-- name: unreadable_since
select at from holdfast_unreadable where job_id = :id and (:error is null or substr(:error, -length(error)) = error);

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

-- name: unreadable_newer
-- The last jobs of each queue, due for a while, that are newer than a worker reads: up to there its next claims need not look.
with recursive asked (type, reads) as (
  select value, json_extract(:reads, '$[' || key || ']') from json_each(:types)),
newer (type, version, is_newer) as (
  select type, reads, 0 from asked
  union all
  select n.type, (select min(w.version) from holdfast_queue w where w.type = n.type and w.version > n.version), 1
    from newer n where n.version is not null)
select type, priority, available_at, job_id
  from (
    select n.type, p.value as priority, q.available_at, q.job_id
      from newer n
     cross join json_each('[0,1,2,3,4,5,6,7,8,9]') p
     cross join holdfast_queue q on q.job_id = (
        select w.job_id from holdfast_queue w
         where w.type = n.type and w.version = n.version and w.priority = p.value and w.available_at <= {now} - 5000000
         order by w.available_at desc, w.job_id desc
         limit 1)
     where n.is_newer)
 order by available_at, job_id;

-- fragment: unread_versions
-- The versions of live jobs, one step along their index each, that none of the live workers of their type reads.
versioned (type) as (
  select min(type) from holdfast_queue where version is not null
  union all
  select (select min(q.type) from holdfast_queue q where q.version is not null and q.type > t.type)
    from versioned t where t.type is not null),
version_of (type, version) as (
  select t.type, (select min(q.version) from holdfast_queue q where q.type = t.type and q.version is not null) from versioned t
   where t.type is not null
  union all
  select v.type, (select min(q.version) from holdfast_queue q where q.type = v.type and q.version > v.version)
    from version_of v where v.version is not null),
unread as (
  select v.type, v.version
    from version_of v
   where v.version > (
     select max(case when k.reads is null then 32767 else coalesce((select r.value from json_each(k.reads) r where r.key = v.type), 1) end)
       from holdfast_worker k
      where k.stopped_at is null and k.seen_at > {now} - k.live_ms * 1000
        and exists (select 1 from json_each(k.types) t where t.value = v.type))),
unread_due (type, due_at) as (
  select u.type, coalesce(q.gate_at, q.available_at)
    from unread u cross join holdfast_queue q on q.type = u.type and q.version = u.version
   where q.token is null and coalesce(q.gate_at, q.available_at) <= {now}
   limit 10000)

-- name: unreadable_count
-- Due jobs that are left to newer workers, of which there are none, count too.
with recursive {unread_versions}
select count(*)
  from (select 1 from holdfast_unreadable u cross join holdfast_queue q on q.job_id = u.job_id
         union all
        select 1 from unread_due
         limit :limit);

-- name: unreadable_groups
-- The error of a missing key names it, and is the same for all jobs that wait for it.
with recursive {unread_versions}
select type, count, since, missing
  from (
    select u.type, count(*) as count, min(u.at) as since, case when u.error like 'sealed with the key %' then u.error end as missing
      from holdfast_unreadable u cross join holdfast_queue q on q.job_id = u.job_id
     group by u.type, missing
     union all
    select type, count(*), min(due_at), null from unread_due group by type)
 order by type, missing is null, missing;
