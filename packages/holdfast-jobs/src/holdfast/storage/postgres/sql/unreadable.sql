-- name: unreadable_note
insert into holdfast.unreadable as u (job_id, type, error, at)
values (:id::uuid, :type, :error, holdfast.moment(:now::bigint))
on conflict (job_id) do update set error = excluded.error
returning holdfast.us(holdfast.moment(:now::bigint)) - holdfast.us(u.at);

-- name: unreadable_since
select holdfast.us(u.at) from holdfast.unreadable u
 where u.job_id = :id::uuid and (:error::text is null or right(:error, length(u.error)) = u.error);

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

-- name: unreadable_newer
-- The last jobs of each queue, due for a while, that are newer than a worker reads: up to there its next claims need not look. What a
-- transaction began before those and commits now is not hidden by them, unless it takes longer.
with recursive newer as (
  select t.type, t.reads as version, false as is_newer
    from unnest(array (select json_array_elements_text(:types::json)),
                array (select json_array_elements_text(:reads::json)::smallint)) t(type, reads)
  union all
  select n.type, (
      select w.version from holdfast.queue w where w.type = n.type and w.version > n.version order by w.version limit 1), true
    from newer n where n.version is not null)
select found.type, found.priority, holdfast.us(found.available_at), found.job_id::text
  from newer n
 cross join unnest('{0,1,2,3,4,5,6,7,8,9}'::smallint[]) level(priority)
 cross join lateral (
   select w.type, w.priority, w.available_at, w.job_id from holdfast.queue w
    where w.type = n.type and w.version = n.version and w.priority = level.priority
      and w.available_at <= holdfast.moment(:now::bigint) - interval '5 s'
    order by w.available_at desc, w.job_id desc
    limit 1) found
 where n.is_newer
 order by found.available_at, found.job_id;

-- fragment: unread_versions
-- The versions of live jobs, one step along their index each, that none of the live workers of their type reads.
version_of (type, version) as (
  (select w.type, w.version from holdfast.queue w where w.version is not null order by w.type, w.version limit 1)
  union all
  select n.type, n.version
    from version_of v
   cross join lateral (
     select w.type, w.version from holdfast.queue w
      where w.version is not null and (w.type, w.version) > (v.type, v.version) order by w.type, w.version limit 1) n),
unread as materialized (
  select v.type, v.version
    from version_of v
   where v.version > (
     select max(case when k.reads is null then 32767 else coalesce((k.reads::json ->> v.type)::integer, 1) end)
       from holdfast.worker k
      where k.stopped_at is null and k.seen_at > holdfast.moment(:now::bigint) - k.live_ms * interval '1 ms'
        and v.type = any (array (select json_array_elements_text(k.types::json)))))

-- fragment: unread_due
-- Those of the jobs of an unread version `u` that are due.
select coalesce(w.gate_at, w.available_at) as due_at from holdfast.queue w
         where w.type = u.type and w.version = u.version and w.token is null
           and coalesce(w.gate_at, w.available_at) <= holdfast.moment(:now::bigint)

-- name: unreadable_count
-- Each is looked up by its key: joined as whole tables, a plan made while they were small reads the queue. Due jobs that are left to
-- newer workers, of which there are none, count too.
with recursive {unread_versions}
select count(*)
  from (select 1
          from holdfast.unreadable u
         cross join lateral (select 1 from holdfast.queue w where w.job_id = u.job_id offset 0) q
         union all
        select 1 from unread u cross join lateral (
        {unread_due}
         limit :limit::integer) q
         limit :limit::integer) x;

-- name: unreadable_groups
-- The error of a missing key names it, and is the same for all jobs that wait for it.
with recursive {unread_versions}
select u.type, count(*), holdfast.us(min(u.at)), k.missing
  from holdfast.unreadable u join holdfast.queue q on q.job_id = u.job_id
 cross join lateral (select case when u.error like 'sealed with the key %' then u.error end as missing) k
 group by u.type, k.missing
 union all
select u.type, count(*), holdfast.us(min(q.due_at)), null
  from unread u cross join lateral (
        {unread_due}
         limit 10000) q
 group by u.type
 order by 1, 4;
