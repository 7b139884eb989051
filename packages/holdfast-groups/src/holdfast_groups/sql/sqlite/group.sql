-- fragment: group_counts
-- The fields of `GroupProgress`, in their order. A chain without jobs was removed by retention: it had completed.
count(*), count(*) filter (where q.job_id is not null and q.token is null), count(*) filter (where q.token is not null),
       count(*) filter (where o.state = 'completed' or t.id is null), count(*) filter (where o.state = 'failed'),
       count(*) filter (where o.state = 'cancelled')

-- fragment: group_tails
-- The last job of each chain, live or ended.
left join holdfast_job t
    on t.id = (select j.id from holdfast_job j where j.chain_id = c.chain_id order by j.chain_index desc limit 1)
  left join holdfast_queue q on q.job_id = t.id
  left join holdfast_outcome o on o.job_id = t.id

-- name: group_progress
select {group_counts}
  from holdfast_blocker c
  {group_tails}
 where c.job_id = :job and c.step is null;

-- name: group_progress_of
select {group_counts}
  from (select value as chain_id from json_each(:chains)) c
  {group_tails}
 where t.id is not null;

-- name: group_open_jobs
-- The last jobs of chains that have not ended, for which a group waits or would wait.
select q.job_id
  from holdfast_blocker c
 cross join holdfast_job j on j.chain_id = c.chain_id
 cross join holdfast_queue q on q.job_id = j.id
 where c.job_id = :job and c.step is null
 order by q.job_id;

-- name: group_list
-- The newest jobs that wait, or waited, for chains however these end, among the newest that wait for anything; with how many of their
-- first chains there are, and have ended.
with recursive waiting (job_id, place) as (
  select (select b.job_id from holdfast_blocker b where b.job_id < :before order by b.job_id desc limit 1), 1
  union all
  select (select b.job_id from holdfast_blocker b where b.job_id < w.job_id order by b.job_id desc limit 1), w.place + 1
    from waiting w
   where w.job_id is not null and w.place < :look),
found as materialized (
  select w.job_id from waiting w
   where exists (select 1 from holdfast_blocker b where b.job_id = w.job_id and b.step is null and b.on_failure = 'run')
   order by w.job_id desc limit :limit),
counted as (
  select f.job_id,
         (select count(*) from (select 1 from holdfast_blocker b where b.job_id = f.job_id and b.step is null limit :max_count)) as total,
         (select sum(not open) from (select b.open from holdfast_blocker b where b.job_id = f.job_id and b.step is null limit :max_count)) as ended
    from found f)
select v.id, v.type, v.state, c.total, coalesce(c.ended, 0), v.created_at
  from counted c cross join holdfast_job_state v on v.id = c.job_id
 order by c.job_id desc;

-- name: group_list_context
-- The same of what was started in a context with this value, along its own jobs; chains of others are not counted.
with waiting as materialized (
  select x.job_id from holdfast_job_context x
   where x.name = :context_name and x.value = :context_value and x.job_id < :before
   order by x.job_id desc limit :look * 10),
found as materialized (
  select w.job_id from waiting w
   where exists (select 1 from holdfast_blocker b where b.job_id = w.job_id and b.step is null and b.on_failure = 'run')
   order by w.job_id desc limit :limit),
counted as (
  select f.job_id,
         (select count(*) from (select 1 from holdfast_blocker b where b.job_id = f.job_id and b.step is null and (:context_name, :context_value, b.chain_id) in holdfast_job_context limit :max_count)) as total,
         (select sum(not open) from (select b.open from holdfast_blocker b where b.job_id = f.job_id and b.step is null and (:context_name, :context_value, b.chain_id) in holdfast_job_context limit :max_count)) as ended
    from found f)
select v.id, v.type, v.state, c.total, coalesce(c.ended, 0), v.created_at
  from counted c cross join holdfast_job_state v on v.id = c.job_id
 order by c.job_id desc;

-- name: group_progress_context
-- As `group_progress`, of a group and chains within a context.
select {group_counts}
  from holdfast_blocker c
  {group_tails}
 where c.job_id = :job and c.step is null
   and (:context_name, :context_value, c.job_id) in holdfast_job_context
   and (:context_name, :context_value, c.chain_id) in holdfast_job_context;
