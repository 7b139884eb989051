-- name: step_record
-- Appends records, each proven by its (job, token) pair. What is not returned was refused, or was there already.
insert into holdfast_step (job_id, name, key, nth, position, kind, state, output, error, arguments, undo, fence, started_at, finished_at,
                           until, signal, signal_key)
select q.job_id, json_extract(x.value, '$.name'), json_extract(x.value, '$.key'), json_extract(x.value, '$.nth'),
       json_extract(x.value, '$.position'), json_extract(x.value, '$.kind'), json_extract(x.value, '$.state'),
       json_extract(x.value, '$.output'), json_extract(x.value, '$.error'), json_extract(x.value, '$.arguments'),
       coalesce(json_extract(x.value, '$.undo'), 0), q.fence, json_extract(x.value, '$.started_at'),
       case when json_extract(x.value, '$.state') <> 'open' then {now} end, {now} + json_extract(x.value, '$.lasts_ms') * 1000,
       json_extract(x.value, '$.signal'), json_extract(x.value, '$.signal_key')
  from json_each(:rows) x
 cross join holdfast_queue q on q.job_id = json_extract(x.value, '$.job_id') and q.token = json_extract(x.value, '$.token')
 where true
on conflict do nothing
returning job_id, name, key, nth, until;

-- name: step_mark
-- Notes that jobs have records, and counts their attempt as the first; rows are [job, token].
update holdfast_queue set steps = 1, attempt = 1
 where (job_id, token) in (select json_extract(value, '$[0]'), json_extract(value, '$[1]') from json_each(:rows));

-- name: step_close_read
-- Which records can end, by their place among the rows, and the signals that they take: those that bear the token and are open, unless
-- they have time left or their signal is gone.
select x.key, g.id, g.broadcast
  from json_each(:rows) x
 cross join holdfast_queue q on q.job_id = json_extract(x.value, '$.job_id') and q.token = json_extract(x.value, '$.token')
 cross join holdfast_step s on s.job_id = q.job_id and s.name = json_extract(x.value, '$.name')
   and s.key = json_extract(x.value, '$.key') and s.nth = json_extract(x.value, '$.nth')
  left join holdfast_signal g on g.id = json_extract(x.value, '$.signal_id')
 where s.state = 'open' and (json_extract(x.value, '$.state') <> 'timed_out' or s.until <= {now})
   and (json_extract(x.value, '$.signal_id') is null or (g.id is not null and g.taken_by is null));

-- name: step_close
-- Ends those that `step_close_read` has named.
update holdfast_step
   set state = json_extract(x.value, '$.state'), output = json_extract(x.value, '$.output'), error = json_extract(x.value, '$.error'),
       signal_id = json_extract(x.value, '$.signal_id'), finished_at = {now}
  from json_each(:rows) x
 where holdfast_step.job_id = json_extract(x.value, '$.job_id') and holdfast_step.name = json_extract(x.value, '$.name')
   and holdfast_step.key = json_extract(x.value, '$.key') and holdfast_step.nth = json_extract(x.value, '$.nth')
returning job_id, name, key, nth, until;

-- name: signal_take
-- Rows are [signal, job].
update holdfast_signal set taken_by = json_extract(x.value, '$[1]')
  from json_each(:rows) x
 where holdfast_signal.id = json_extract(x.value, '$[0]');

-- fragment: is_takeable
-- Whether the open wait `s` can take the signal `g`; of a broadcast a job takes one once.
g.name = s.signal and g.key = s.signal_key and g.taken_by is null and g.until > {now}
           and (not g.broadcast or not exists (
                 select 1 from holdfast_step d where d.job_id = s.job_id and d.signal_id = g.id))

-- fragment: has_happened
-- Whether what the open record `s` waits for has happened: a signal for a wait, or the end of all chains of a run.
case when s.kind = 'wait' then exists (select 1 from holdfast_signal g where {is_takeable})
                     when s.kind = 'run' then not exists (
                       select 1 from holdfast_blocker b where b.job_id = s.job_id and b.step = s.position and b.open = 1) end

-- fragment: wake
-- Makes a parked live row due, at the place where its partition has it; one that runs is due again when it parks.
woken = case when token is not null then 1 end,
       available_at = case when token is not null then available_at when gate is null then min(available_at, {now}) end,
       gate_at = case when token is not null or gate is null or {is_ordered} then gate_at else min(coalesce(gate_at, {now}), {now}) end,
       rests_until = case when token is null and {is_ordered} then {now} else rests_until end

-- name: step_may_go_on
-- Which jobs are due again as soon as they park; rows are [job, the positions of records that it waits for no longer].
select q.job_id
  from json_each(:rows) x
 cross join holdfast_queue q on q.job_id = json_extract(x.value, '$[0]')
 where q.woken or exists (
         select 1 from holdfast_step s
          where s.job_id = q.job_id and s.state = 'open' and s.position not in (select value from json_each(x.value, '$[1]'))
            and {has_happened});

-- name: step_wake_parents
-- Wakes functions with a run all whose chains have ended.
update holdfast_queue
   set {wake}
 where job_id in (select value from json_each(:ids)) and (token is not null or not woken)
   and exists (select 1 from holdfast_step s where s.job_id = holdfast_queue.job_id and s.state = 'open' and {has_happened})
returning job_id, type, gate, token;

-- name: step_list
-- The records of jobs in their order, with the oldest signal that an open wait can take.
select s.job_id, s.name, s.key, s.nth, s.position, s.kind, s.state, s.output, s.error, s.arguments, s.undo, s.fence, s.started_at,
       s.finished_at, s.until, s.signal, s.signal_key, coalesce(s.signal_id, g.id), g.data
  from json_each(:ids) x
 cross join holdfast_step s on s.job_id = x.value
  left join holdfast_signal g
    on s.kind = 'wait' and s.state = 'open'
   and g.id = (select g.id from holdfast_signal g where {is_takeable} order by g.id limit 1)
 order by s.job_id, s.position, s.name, s.key, s.nth;

-- name: step_undo
-- What failed of functions is done again, and what was undone; the rest of their records stay.
delete from holdfast_step as s
 where s.job_id in (select value from json_each(:ids))
   and (s.kind in ('failure', 'undo') or (s.state = 'failed' and s.kind in ('step', 'run'))
        or (s.undo and exists (
              select 1 from holdfast_step u
               where u.job_id = s.job_id and u.name = 'undo:' || s.name and u.key = s.key and u.nth = s.nth
                 and u.kind = 'undo' and u.state = 'done')))
returning job_id, position, kind;

-- name: step_unbind
-- The edges of runs that are done again; rows are [job, position, kind] of records.
delete from holdfast_blocker
 where (job_id, step) in (
   select json_extract(value, '$[0]'), json_extract(value, '$[1]') from json_each(:rows) where json_extract(value, '$[2]') = 'run');

-- name: signal_append
-- Appends signals; one whose id was given before is left alone. `signal_wake` follows.
insert into holdfast_signal (id, name, key, data, given_id, broadcast, at, until)
select json_extract(value, '$.id'), json_extract(value, '$.name'), json_extract(value, '$.key'), json_extract(value, '$.data'),
       json_extract(value, '$.given_id'), coalesce(json_extract(value, '$.broadcast'), 0), {now},
       {now} + json_extract(value, '$.keep_ms') * 1000
  from json_each(:rows)
 where true
on conflict do nothing
returning id;

-- name: signal_wake
-- Wakes the functions that wait for signals.
update holdfast_queue
   set {wake}
 where job_id in (
     select w.job_id from json_each(:ids) x
      cross join holdfast_signal g on g.id = x.value
      cross join holdfast_step w on w.signal = g.name and w.signal_key = g.key and w.state = 'open' and w.kind = 'wait')
   and (token is not null or not woken)
returning job_id, type, gate, token;

-- name: signal_fresh
-- None ever is: whoever sends a signal routes it.
select 1 where 0;

-- name: signal_waits
-- The open waits of live jobs, those of the oldest jobs first.
select s.job_id, j.chain_id, q.type,
       s.name || case when s.key <> '' then '[' || s.key || ']' when s.nth > 1 then '#' || s.nth else '' end,
       s.signal, s.signal_key, coalesce(s.started_at, j.created_at), s.until
  from holdfast_step s indexed by holdfast_step_open
 cross join holdfast_queue q on q.job_id = s.job_id
 cross join holdfast_job j on j.id = s.job_id
 where s.state = 'open' and s.kind = 'wait'
 order by s.job_id, s.position
 limit :limit;

-- name: signal_list
select id, name, key, data, given_id, broadcast, at, until, taken_by from holdfast_signal order by id desc limit :limit;

-- name: signal_unwanted
-- Of the oldest signals, those that nobody has taken for so long, and that nobody waits for.
select id, name, key, data, given_id, broadcast, at, until, taken_by
  from (select * from holdfast_signal order by id limit :look) g
 where taken_by is null and not broadcast and until > {now} and at <= {now} - :after_ms * 1000
   and not exists (
     select 1 from holdfast_step s cross join holdfast_queue q on q.job_id = s.job_id
      where s.signal = g.name and s.signal_key = g.key and s.state = 'open' and s.kind = 'wait')
 order by id
 limit :limit;

-- name: step_stranded
-- Of these jobs, the parked functions that nothing will wake: they have no time, and no open wait or edge.
select q.job_id, q.type
  from json_each(:ids) x
 cross join holdfast_queue q on q.job_id = x.value
 where q.steps and q.token is null and q.available_at = 9223372036854775807
   and not exists (select 1 from holdfast_step s where s.job_id = q.job_id and s.state = 'open' and s.kind = 'wait')
   and not exists (select 1 from holdfast_blocker b where b.job_id = q.job_id and b.open = 1)
 order by q.job_id;

-- name: step_latest
-- The last records of a job, in their order.
select * from (
  select job_id, name, key, nth, position, kind, state, output, error, arguments, undo, fence, started_at, finished_at, until, signal,
         signal_key
    from holdfast_step
   where job_id = :job_id
   order by position desc, name desc, key desc, nth desc
   limit :limit)
 order by position, name, key, nth;

-- name: step_parked
-- What a parked function waits for.
select s.job_id, s.name, s.key, s.nth, s.position, s.kind, s.state, s.output, s.error, s.arguments, s.undo, s.fence, s.started_at,
       s.finished_at, s.until, s.signal, s.signal_key
  from holdfast_step s
 cross join holdfast_queue q on q.job_id = s.job_id and q.token is null and q.woken = 0
 where s.job_id = :job_id and s.state = 'open' and s.kind <> 'cursor'
 order by s.position, s.name, s.key, s.nth
 limit :limit;

-- name: step_waiting
-- How many waits of each kind parked functions have, among the oldest that are open.
select s.kind, count(*)
  from (select job_id, kind from holdfast_step indexed by holdfast_step_open where state = 'open' order by job_id limit :look) s
 cross join holdfast_queue q on q.job_id = s.job_id and q.token is null and q.woken = 0
 where s.kind <> 'cursor'
 group by s.kind;

-- name: step_copy
-- Gives a new job records that another has; `step_copied` notes that it has some.
insert into holdfast_step (job_id, name, key, nth, position, kind, state, output, error, arguments, undo, fence, started_at, finished_at,
                           until, signal, signal_key)
select :job_id, json_extract(value, '$.name'), json_extract(value, '$.key'), json_extract(value, '$.nth'),
       json_extract(value, '$.position'), json_extract(value, '$.kind'), json_extract(value, '$.state'),
       json_extract(value, '$.output'), json_extract(value, '$.error'), json_extract(value, '$.arguments'),
       json_extract(value, '$.undo'), 0, json_extract(value, '$.started_at'), json_extract(value, '$.finished_at'),
       json_extract(value, '$.until'), json_extract(value, '$.signal'), json_extract(value, '$.signal_key')
  from json_each(:rows);

-- name: step_copied
update holdfast_queue set steps = 1 where job_id = :job_id;
