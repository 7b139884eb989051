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
