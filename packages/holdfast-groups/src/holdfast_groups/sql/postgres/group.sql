-- fragment: group_counts
-- The fields of `GroupProgress`, in their order. A chain without jobs was removed by retention: it had completed.
count(*)::bigint, count(*) filter (where q.job_id is not null and q.token is null)::bigint,
       count(*) filter (where q.token is not null)::bigint,
       count(*) filter (where o.state = 'completed' or t.id is null)::bigint,
       count(*) filter (where o.state = 'failed')::bigint, count(*) filter (where o.state = 'cancelled')::bigint

-- fragment: group_tails
-- The last job of each chain, live or ended.
left join lateral (
    select j.id from holdfast.job j where j.chain_id = c.chain_id order by j.chain_index desc limit 1) t on true
  left join holdfast.queue q on q.job_id = t.id
  left join holdfast.outcome o on o.job_id = t.id

-- name: group_progress
select {group_counts}
  from holdfast.blocker c
  {group_tails}
 where c.job_id = :job::uuid and c.step is null;

-- name: group_progress_of
select {group_counts}
  from (select i::uuid as chain_id from json_array_elements_text(:chains::json) i) c
  {group_tails}
 where t.id is not null;

-- name: group_open_jobs
-- The last jobs of chains that have not ended, for which a group waits or would wait.
select q.job_id::text
  from holdfast.blocker c
  join holdfast.job j on j.chain_id = c.chain_id
  join holdfast.queue q on q.job_id = j.id
 where c.job_id = :job::uuid and c.step is null
 order by q.job_id;

-- name: group_list
-- The newest jobs that wait, or waited, for chains however these end, among the newest that wait for anything; with how many of their
-- first chains there are, and have ended.
with recursive waiting as (
  (select b.job_id, 1 as place from holdfast.blocker b where b.job_id < :before::uuid order by b.job_id desc limit 1)
  union all
  select n.job_id, w.place + 1
    from waiting w
   cross join lateral (
     select b.job_id from holdfast.blocker b where b.job_id < w.job_id order by b.job_id desc limit 1) n
   where w.place < :look::integer),
found as materialized (
  select w.job_id from waiting w
   where exists (select from holdfast.blocker b where b.job_id = w.job_id and b.step is null and b.on_failure = 'run')
   order by w.job_id desc limit :limit::integer)
select v.id::text, v.type, v.state, c.total, c.ended, holdfast.us(v.created_at)
  from found f
 cross join lateral (select j.* from holdfast.jobs j where j.id = f.job_id offset 0) v
 cross join lateral (
   select count(*) as total, count(*) filter (where not x.open) as ended
     from (select b.open from holdfast.blocker b where b.job_id = f.job_id and b.step is null limit :max_count::integer) x) c
 order by f.job_id desc;

-- name: group_list_context
-- The same of what was started in a context with this value, along its own jobs; chains of others are not counted.
with waiting as (
  select x.job_id from holdfast.job_context x
   where x.name = :context_name and x.value = :context_value and x.job_id < :before::uuid
   order by x.job_id desc limit :look::integer * 10),
found as materialized (
  select w.job_id from waiting w
   where exists (select from holdfast.blocker b where b.job_id = w.job_id and b.step is null and b.on_failure = 'run')
   order by w.job_id desc limit :limit::integer)
select v.id::text, v.type, v.state, c.total, c.ended, holdfast.us(v.created_at)
  from found f
 cross join lateral (select j.* from holdfast.jobs j where j.id = f.job_id offset 0) v
 cross join lateral (
   select count(*) as total, count(*) filter (where not x.open) as ended
     from (select b.open from holdfast.blocker b where b.job_id = f.job_id and b.step is null and exists (
            select from holdfast.job_context x
             where x.name = :context_name and x.value = :context_value and x.job_id = b.chain_id) limit :max_count::integer) x) c
 order by f.job_id desc;

-- name: group_progress_context
-- As `group_progress`, of a group and chains within a context.
select {group_counts}
  from holdfast.blocker c
  {group_tails}
 where c.job_id = :job::uuid and c.step is null
   and 2 = (select count(*) from holdfast.job_context x
             where x.name = :context_name and x.value = :context_value and x.job_id in (c.job_id, c.chain_id));
