-- fragment: revision_due
-- When a job starts by its newest revision `n`, if it is not asked for again: after the quiet, but not later than the latest.
least(n.at + n.quiet_ms * interval '1 ms', j.created_at + n.latest_ms * interval '1 ms')

-- name: revision_add
-- Appends what debounced jobs are asked for again with, if they have not started or have failed; what is not returned takes no
-- more. The lock is shared between producers and keeps claims away until they commit: a claim sees all or takes nothing. Past
-- its latest time a job takes no more, so that producers who overlap without end cannot keep it from starting; one that waits
-- for the run before it takes all. A function with records goes on with the input that it has.
with given as materialized (
  select * from json_to_recordset(:rows::json) as x(job_id uuid, input text, quiet_ms bigint, latest_ms bigint, version smallint)),
debounced as materialized (
  select j.id, bool_or(g.latest_ms is null or j.created_at + g.latest_ms * interval '1 ms' > holdfast.moment(:now::bigint)) as in_time
    from given g
   cross join lateral (select j.id, j.created_at from holdfast.job j where j.id = g.job_id and {is_debounced} offset 0) j
   group by j.id),
waiting as (
  select q.job_id from holdfast.queue q
   where q.job_id = any (array (select id from debounced)) and q.token is null and q.steps is null
     and (q.available_at = 'infinity' or q.job_id = any (array (select id from debounced where in_time)))
   order by q.job_id
   for key share),
dead as (
  select o.job_id from holdfast.outcome o
   where o.job_id = any (array (select id from debounced)) and o.state = 'failed'
   order by o.job_id
   for key share)
insert into holdfast.revision (job_id, input, at, quiet_ms, latest_ms, version)
select g.job_id, g.input, holdfast.moment(:now::bigint), g.quiet_ms, g.latest_ms, g.version
  from given g
 where g.job_id = any (array (select job_id from waiting union all select job_id from dead))
returning job_id::text;

-- name: revision_settle
-- Decides about debounced jobs that were just claimed, each proven by its (job, token) pair: what has been quiet long enough gets
-- its newest input, anything else its later time. While a job bears a token nothing is appended, so what is seen here is all.
with given as materialized (
  select * from json_to_recordset(:rows::json) as x(id uuid, token uuid)),
clock as materialized (
  select holdfast.moment(:now::bigint) as now),
held as materialized (
  select q.job_id from holdfast.queue q
   where q.job_id = any (array (select id from given))
     and ((q.job_id, q.token) in (select id, token from given)) is true
   for no key update skip locked),
newest as materialized (
  select h.job_id, n.input, n.version, {revision_due} as due_at
    from held h
   cross join lateral (select r.* from holdfast.revision r where r.job_id = h.job_id order by r.n desc limit 1) n
   cross join lateral (select w.created_at from holdfast.job w where w.id = h.job_id offset 0) j),
final as (
  update holdfast.job j set input = n.input, version = n.version from newest n
   where j.id = any (array (select job_id from newest where due_at <= (select now from clock))) and j.id = n.job_id
  returning j.id),
answered as (
  delete from holdfast.revision where job_id = any (array (select id from final))),
reversioned as (
  update holdfast.queue q set version = n.version from newest n
   where q.job_id = any (array (select id from final)) and q.job_id = n.job_id and coalesce(q.version, 1) <> coalesce(n.version, 1)),
put_off as (
  update holdfast.queue q
     set available_at = case when q.gate is null then n.due_at end,
         gate_at = case when q.gate is not null then n.due_at end
    from newest n
   where q.job_id = any (array (select job_id from newest where due_at > (select now from clock))) and q.job_id = n.job_id
  returning q.job_id)
select h.job_id::text, case when n.due_at <= (select now from clock) then n.input end, coalesce(n.due_at > (select now from clock), false),
       n.version
  from held h left join newest n on n.job_id = h.job_id;

-- name: revision_hurry
-- Has jobs that were made due wait no longer for quiet.
update holdfast.revision set quiet_ms = 0
 where job_id = any (array (select i::uuid from json_array_elements_text(:ids::json) i));

-- name: revision_follow
-- Marks jobs that were inserted as blocked as debounced: they wait for the run before them, whose output they do not read.
update holdfast.job set debounced = true, blockers = 0
 where id = any (array (select i::uuid from json_array_elements_text(:ids::json) i));

-- name: revision_get
-- When a job starts if it is not asked for again, its latest time, how often it was asked for, and its last input.
select holdfast.us({revision_due}), holdfast.us(j.created_at + n.latest_ms * interval '1 ms'), n.number, n.input, n.version
  from (select r.*, count(*) over () as number from holdfast.revision r where r.job_id = :id::uuid order by r.n desc limit 1) n
  join holdfast.job j on j.id = n.job_id;
