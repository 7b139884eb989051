-- name: figure_series
-- What the tally says of each step of the last span; the tally is small, because it is folded by the minute.
select t.at / :step_us * :step_us as step, sum(t.started), sum(t.completed), sum(t.failed), sum(t.cancelled), sum(t.retried), sum(t.reaped)
  from holdfast_tally t
 where t.at > coalesce(:now, (select now from holdfast_clock)) - :span_us
 group by step
 order by step;

-- name: figure_waits
-- How long the youngest ended jobs waited from due to started; blocked ones and later attempts say nothing of the queue.
select o.started_at - max(j.created_at, coalesce(j.planned_at, j.created_at))
  from (select job_id, started_at, attempts from holdfast_outcome order by job_id desc limit :look) o
  join holdfast_job j on j.id = o.job_id
 where o.started_at is not null and o.attempts = 1 and j.blockers = 0;
