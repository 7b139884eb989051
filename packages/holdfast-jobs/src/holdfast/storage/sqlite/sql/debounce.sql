-- fragment: revision_due
-- When a job starts by its newest revision `n`, if it is not asked for again: after the quiet, but not later than the latest.
min(n.at + n.quiet_ms * 1000, coalesce(j.created_at + n.latest_ms * 1000, 9223372036854775807))

-- name: revision_add
-- Appends what debounced jobs are asked for again with, if they have not started or have failed; what is not returned takes no
-- more. Past its latest time a job takes no more; one that waits for the run before it takes all. A function with
-- records goes on with the input that it has.
insert into holdfast_revision (job_id, input, at, quiet_ms, latest_ms, version)
select g.job_id, g.input, {now}, g.quiet_ms, g.latest_ms, g.version
  from (select key as place, json_extract(value, '$.job_id') as job_id, json_extract(value, '$.input') as input,
               json_extract(value, '$.quiet_ms') as quiet_ms, json_extract(value, '$.latest_ms') as latest_ms,
               json_extract(value, '$.version') as version
          from json_each(:rows)) g
 cross join holdfast_job j on j.id = g.job_id and {is_debounced}
 where exists (
         select 1 from holdfast_queue q
          where q.job_id = j.id and q.token is null and q.steps is null
            and (g.latest_ms is null or q.available_at = 9223372036854775807 or j.created_at + g.latest_ms * 1000 > {now}))
    or exists (select 1 from holdfast_outcome o where o.job_id = j.id and o.state = 'failed')
 order by g.place
returning job_id;

-- name: revision_newest
-- The claimed jobs among these that are held by their tokens, rows [id, token], with their newest input and when they start by it.
select q.job_id, n.input, {revision_due}, n.version
  from json_each(:rows) x
 cross join holdfast_queue q on q.job_id = json_extract(x.value, '$.id') and q.token = json_extract(x.value, '$.token')
 cross join holdfast_job j on j.id = q.job_id
  left join holdfast_revision n on n.n = (select max(r.n) from holdfast_revision r where r.job_id = q.job_id);

-- name: revision_final
-- Makes the newest revisions of jobs their inputs. `revision_version` and `revision_drop` follow.
update holdfast_job
   set (input, version) = (
         select n.input, n.version from holdfast_revision n where n.job_id = holdfast_job.id order by n.n desc limit 1)
 where id in (select value from json_each(:ids));

-- name: revision_version
-- Their live rows say which version that is.
update holdfast_queue set version = (select j.version from holdfast_job j where j.id = holdfast_queue.job_id)
 where job_id in (select value from json_each(:ids));

-- name: revision_drop
delete from holdfast_revision where job_id in (select value from json_each(:ids));

-- name: revision_put_off
-- Lets claimed jobs be due later, by [id, instant].
update holdfast_queue
   set available_at = case when gate is null then x.due_at end,
       gate_at = case when gate is not null then x.due_at end
  from (select json_extract(value, '$[0]') as id, json_extract(value, '$[1]') as due_at from json_each(:rows)) x
 where holdfast_queue.job_id = x.id;

-- name: revision_hurry
-- Has jobs that were made due wait no longer for quiet.
update holdfast_revision set quiet_ms = 0 where job_id in (select value from json_each(:ids));

-- name: revision_follow
-- Marks jobs that were inserted as blocked as debounced: they wait for the run before them, whose output they do not read.
update holdfast_job set debounced = 1, blockers = 0 where id in (select value from json_each(:ids));

-- name: revision_get
-- When a job starts if it is not asked for again, its latest time, how often it was asked for, and its last input.
select {revision_due}, j.created_at + n.latest_ms * 1000,
       (select count(*) from holdfast_revision r where r.job_id = :id), n.input, n.version
  from holdfast_revision n join holdfast_job j on j.id = n.job_id
 where n.job_id = :id
 order by n.n desc
 limit 1;
