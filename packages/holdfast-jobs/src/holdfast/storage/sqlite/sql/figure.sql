-- name: figure_series
-- What the tally says of each step of the last span, of all types or of one; the tally is small, because it is folded by the
-- minute.
select t.at / :step_us * :step_us as step, sum(t.started), sum(t.completed), sum(t.failed), sum(t.cancelled), sum(t.retried), sum(t.reaped)
  from holdfast_tally t
 where t.at > {now} - :span_us and (:type is null or t.type = :type)
 group by step
 order by step;

-- name: figure_waits
-- How long jobs waited from due to started: of each step some that were made in it, along the key. Blocked ones and later
-- attempts say nothing of the queue, nor does one that was redriven: nothing records when it became due again. A row of the
-- FROM clause cannot be looked at sideways here, hence the list of keys.
select json_extract(s.value, '$.at'), o.started_at - max(j.created_at, coalesce(j.planned_at, j.created_at))
  from json_each(:rows) s
  cross join holdfast_outcome o on o.job_id in (
    select job_id from holdfast_outcome
     where job_id >= json_extract(s.value, '$.first') and job_id < json_extract(s.value, '$.last') order by job_id limit :look)
  cross join holdfast_job j on j.id = o.job_id
 where o.started_at is not null and o.attempts = 1 and j.blockers = 0 and not {is_debounced}
   and not exists (select 1 from holdfast_attempt a where a.job_id = o.job_id and a.fence < o.fence);

-- name: figure_finished
-- The newest ended jobs of one type among the newest of all, along the key: no index leads to a type, and one would cost every
-- job that ends.
select o.job_id, o.state, o.attempts, max(j.created_at, coalesce(j.planned_at, j.created_at)), o.started_at, o.finished_at,
       j.blockers > 0 or {is_debounced}, exists (select 1 from holdfast_attempt a where a.job_id = o.job_id and a.fence < o.fence)
  from (
    select * from (
      select job_id, type, state, attempts, fence, started_at, finished_at from holdfast_outcome
       order by job_id desc limit :look)
     where type = :type limit :limit) o
 cross join holdfast_job j on j.id = o.job_id
 order by o.job_id desc;

-- name: figure_types
-- What each type ended within the last span, by the tally, and how many of it run, by what the leases still hold.
select type, max(sum(ended), 0), sum(running)
  from (
    select t.type as type, t.completed + t.failed + t.cancelled as ended, 0 as running
      from holdfast_tally t
     where t.at > {now} - :span_us
    union all
    select q.type, 0, 1
      from holdfast_lease l
     cross join json_each(l.job_ids) j
     cross join holdfast_queue q on q.job_id = j.value and q.token = l.token)
 group by type
 order by type;

-- name: figure_timeouts
-- Attempts stopped by their type's timeout, most first, among the failed attempts of the newest jobs, along their key.
select j.type, count(*)
  from (
    select job_id, error, ended_at from holdfast_attempt
     order by job_id desc, fence desc, attempt desc limit :look) a
 cross join holdfast_job j on j.id = a.job_id
 where a.error like 'TimedOut:%' and a.ended_at > {now} - :span_us
 group by j.type order by count(*) desc, j.type;
