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
