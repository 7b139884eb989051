-- name: figure_series
-- What the tally says of each step of the last span, of all types or of one; the tally is small, because it is folded by the
-- minute.
select at, sum(started)::bigint, sum(completed)::bigint, sum(failed)::bigint, sum(cancelled)::bigint, sum(retried)::bigint, sum(reaped)::bigint
  from (
    select holdfast.us(t.at) / :step_us::bigint * :step_us::bigint as at, t.started, t.completed, t.failed, t.cancelled, t.retried, t.reaped
      from holdfast.tally t
     where t.at > holdfast.moment(:now::bigint) - :span_us::bigint * interval '1 microsecond'
       and (:type::text is null or t.type = :type)) steps
 group by at
 order by at;

-- name: figure_waits
-- How long jobs waited from due to started: of each step some that were made in it, along the key. Blocked ones and later
-- attempts say nothing of the queue, nor does one that was redriven: nothing records when it became due again.
select s.at, holdfast.us(o.started_at) - holdfast.us(greatest(j.created_at, j.planned_at))
  from json_to_recordset(:rows::json) s(at bigint, first uuid, last uuid)
 cross join lateral (
    select job_id, started_at, attempts, fence from holdfast.outcome
     where job_id >= s.first and job_id < s.last order by job_id limit :look::integer) o
  join holdfast.job j on j.id = o.job_id
 where o.started_at is not null and o.attempts = 1 and j.blockers = 0 and not {is_debounced}
   and not exists (select from holdfast.attempt a where a.job_id = o.job_id and a.fence < o.fence);

-- name: figure_finished
-- The newest ended jobs of one type among the newest of all, along the key: no index leads to a type, and one would cost every
-- job that ends. The bound that is a number keeps the estimate small.
select o.job_id::text, o.state, o.attempts, holdfast.us(greatest(j.created_at, j.planned_at)), holdfast.us(o.started_at),
       holdfast.us(o.finished_at), j.blockers > 0 or {is_debounced},
       exists (select from holdfast.attempt a where a.job_id = o.job_id and a.fence < o.fence)
  from (
    select * from (
      select * from (
        select job_id, type, state, attempts, fence, started_at, finished_at from holdfast.outcome
         order by job_id desc limit 10000) known
       limit :look::integer) newest
     where type = :type limit :limit::integer) o
 cross join lateral (select created_at, planned_at, blockers, debounced from holdfast.job where id = o.job_id offset 0) j
 order by o.job_id desc;

-- name: figure_types
-- What each type ended within the last span, by the tally, and how many of it run, by what the leases still hold.
select type, greatest(sum(ended), 0)::bigint, sum(running)::bigint
  from (
    select t.type, t.completed + t.failed + t.cancelled as ended, 0 as running
      from holdfast.tally t
     where t.at > holdfast.moment(:now::bigint) - :span_us::bigint * interval '1 microsecond'
    union all
    select q.type, 0, 1
      from holdfast.queue q join holdfast.lease l on l.token = q.token
     where q.job_id = any (array (select unnest(job_ids) from holdfast.lease))) found
 group by type
 order by type;

-- name: figure_timeouts
-- Attempts stopped by their type's timeout, most first, among the failed attempts of the newest jobs, along their key.
select j.type, count(*)
  from (
    select a.job_id, a.error, a.ended_at from holdfast.attempt a
     order by a.job_id desc, a.fence desc, a.attempt desc limit :look::integer) a
  join holdfast.job j on j.id = a.job_id
 where a.error like 'TimedOut:%' and a.ended_at > holdfast.moment(:now::bigint) - :span_us::bigint * interval '1 microsecond'
 group by j.type order by count(*) desc, j.type;
