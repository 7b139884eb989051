-- fragment: live_of_steps
-- The live rows of `given` records, if they bear the token that proves the record. They are locked until the commit, so that nobody
-- takes a job over who cannot see its new records. Others record for the same job meanwhile; what is changed needs the row alone.
-- A row that somebody else has is left out: one job's open transaction must not hold up the records of all.
live as materialized (
  select * from (
    select q.job_id, q.token, q.fence from holdfast.queue q
     where q.job_id = any (array (select job_id from given group by job_id having bool_or(marks) is not true))
       and ((q.job_id, q.token) in (select job_id, token from given)) is true
       for share skip locked) shared
  union all
  select * from (
    select q.job_id, q.token, q.fence from holdfast.queue q
     where q.job_id = any (array (select job_id from given where marks))
       and ((q.job_id, q.token) in (select job_id, token from given)) is true
       for no key update skip locked) marked)

-- fragment: step_columns
job_id, name, key, nth, position, kind, state, output, error, arguments, undo, fence, started_at, finished_at, until, signal,
    signal_key

-- name: step_record
-- Appends records, each proven by its (job, token) pair in the statement itself. What is not returned was refused, is locked, or was
-- there already. The first record of an attempt is progress: the live row notes that there are records, and the attempt is the first.
with given as materialized (
  select * from json_to_recordset(:rows::json) as x(
    job_id uuid, token uuid, name text, key text, nth integer, position integer, kind text, state text, output text, error text,
    arguments bigint, undo boolean, started_at bigint, lasts_ms bigint, signal text, signal_key text, marks boolean)),
{live_of_steps},
marked as (
  update holdfast.queue q set steps = true, attempt = 1
   where q.job_id = any (array (
     select g.job_id from given g join live l on l.job_id = g.job_id and l.token = g.token where g.marks)))
insert into holdfast.step ({step_columns})
select g.job_id, g.name, g.key, g.nth, g.position, g.kind, g.state, g.output, g.error, g.arguments, coalesce(g.undo, false), l.fence,
       to_timestamp(g.started_at / 1000000.0), case when g.state <> 'open' then holdfast.moment(:now::bigint) end,
       holdfast.moment(:now::bigint) + g.lasts_ms * interval '1 ms', g.signal, g.signal_key
  from given g join live l on l.job_id = g.job_id and l.token = g.token
on conflict do nothing
returning job_id::text, name, key, nth, holdfast.us(until);

-- name: step_append
-- The same of one step that is done and is not the first record of its attempt, at less than the batch costs: to look for another of its
-- id first, and to return a row, would take a tenth of it.
insert into holdfast.step (job_id, name, key, nth, position, kind, state, output, arguments, undo, fence, started_at, finished_at)
select :job_id::uuid, :name, :key, :nth::integer, :position::integer, :kind, 'done', :output, :arguments::bigint, :undo::boolean,
       l.fence, to_timestamp(:started_at::float8 / 1000000), holdfast.moment(:now::bigint)
  from (select q.fence from holdfast.queue q where q.job_id = :job_id::uuid and q.token = :token::uuid
           for share skip locked) l;

-- name: step_close
-- Ends open records, proven and locked as new ones are. The record is locked before a signal is taken for it, so that a statement that
-- was sent twice takes one. A signal is waited for: whoever else wants it has it, or leaves it.
with given as materialized (
  select *, null::boolean as marks from json_to_recordset(:rows::json) as x(
    job_id uuid, token uuid, name text, key text, nth integer, state text, output text, error text, signal_id uuid)),
{live_of_steps},
opened as materialized (
  select s.job_id, s.name, s.key, s.nth, g.state, g.output, g.error, g.signal_id
    from given g
    join live l on l.job_id = g.job_id and l.token = g.token
    join holdfast.step s on s.job_id = g.job_id and s.name = g.name and s.key = g.key and s.nth = g.nth
   where s.state = 'open' and (g.state <> 'timed_out' or s.until <= holdfast.moment(:now::bigint))
     for update of s),
taken as (
  update holdfast.signal g set taken_by = o.job_id from opened o
   where g.id = o.signal_id and g.taken_by is null and not g.broadcast
  returning o.job_id, o.name, o.key, o.nth)
update holdfast.step s
   set state = o.state, output = o.output, error = o.error, signal_id = o.signal_id, finished_at = holdfast.moment(:now::bigint)
  from opened o
 where s.job_id = o.job_id and s.name = o.name and s.key = o.key and s.nth = o.nth
   and (o.signal_id is null
        or ((o.job_id, o.name, o.key, o.nth) in (select job_id, name, key, nth from taken)) is true
        or exists (select from holdfast.signal g where g.id = o.signal_id and g.broadcast))
returning s.job_id::text, s.name, s.key, s.nth, holdfast.us(s.until);

-- fragment: is_takeable
-- Whether the open wait `s` can take the signal `g`; of a broadcast a job takes one once.
g.name = s.signal and g.key = s.signal_key and g.taken_by is null and g.until > holdfast.moment(:now::bigint)
          and (not g.broadcast or not exists (
                select from holdfast.step d where d.job_id = s.job_id and d.signal_id = g.id))

-- fragment: has_happened
-- Whether what the open record `s` waits for has happened: a signal for a wait, or the end of all chains of a run.
case when s.kind = 'wait' then exists (select from holdfast.signal g where {is_takeable})
                        when s.kind = 'run' then not exists (
                          select from holdfast.blocker b where b.job_id = s.job_id and b.step = s.position and b.open) end

-- fragment: wake
-- Makes a parked live row `q` due, at the place where its partition has it; one that runs is due again when it parks.
woken = case when q.token is not null then true end,
         available_at = case when q.token is not null then q.available_at
                             when q.gate is null then least(q.available_at, holdfast.moment(:now::bigint)) end,
         gate_at = case when q.token is not null or q.gate is null or {is_ordered} then q.gate_at
                        else least(q.gate_at, holdfast.moment(:now::bigint)) end,
         rests_until = case when q.token is null and {is_ordered} then holdfast.moment(:now::bigint) else q.rests_until end

-- name: step_wake_parents
-- Wakes functions with a run all whose chains have ended; they were locked before, so this happens once.
with woken as (
  update holdfast.queue q
     set {wake}
   where q.job_id = any (array (select i::uuid from json_array_elements_text(:ids::json) i))
     and (q.token is not null or not q.woken)
     and exists (select from holdfast.step s where s.job_id = q.job_id and s.state = 'open' and {has_happened})
  returning q.job_id, q.type, q.priority, q.gate, q.gate_at, q.token),
freed_partition as (
  select type, priority, gate, gate_at as since from woken where token is null),
signalled as (
  {signal_freed})
select job_id::text, type from woken where token is null;

-- name: step_list
-- The records of jobs in their order, with the oldest signal that an open wait can take.
select s.job_id::text, s.name, s.key, s.nth, s.position, s.kind, s.state, s.output, s.error, s.arguments, s.undo, s.fence,
       holdfast.us(s.started_at), holdfast.us(s.finished_at), holdfast.us(s.until), s.signal, s.signal_key,
       coalesce(s.signal_id, found.id)::text, found.data
  from holdfast.step s
  left join lateral (
    select g.id, g.data from holdfast.signal g
     where s.kind = 'wait' and s.state = 'open' and {is_takeable}
     order by g.id
     limit 1) found on true
 where s.job_id = any (array (select i::uuid from json_array_elements_text(:ids::json) i))
 order by s.job_id, s.position, s.name, s.key, s.nth;

-- name: signal_append
-- Appends signals and nothing else, so that no transaction of a user's waits or fails because of what waits for them. One whose id
-- was given before is left alone.
with written as (
  insert into holdfast.signal (id, name, key, data, given_id, broadcast, at, until)
  select x.id, x.name, x.key, x.data, x.given_id, coalesce(x.broadcast, false), holdfast.moment(:now::bigint),
         holdfast.moment(:now::bigint) + x.keep_ms * interval '1 ms'
    from json_to_recordset(:rows::json) as x(
      id uuid, name text, key text, data text, keep_ms bigint, given_id text, broadcast boolean)
   order by x.name, x.key, x.given_id
  on conflict do nothing
  returning id, name)
select id::text, case when :channel::text is not null and row_number() over (partition by name order by id) = 1
                      then pg_notify(:channel, '[{"k":"signal","t":' || to_json(name)::text || '}]') end
  from written;

-- name: signal_route
-- Wakes the functions that wait for fresh signals. A wait that this snapshot has not was committed later, and parking, which follows
-- it, sees the signal. What others have locked is not waited for: while the live row of one that waits is, the signal stays fresh.
with fresh as materialized (
  select id, name, key from holdfast.signal where fresh order by id limit :limit::integer for update skip locked),
waiting as materialized (
  select w.job_id, f.id
    from fresh f join holdfast.step w on w.signal = f.name and w.signal_key = f.key and w.state = 'open' and w.kind = 'wait'),
live as materialized (
  select q.job_id from holdfast.queue q where q.job_id = any (array (select job_id from waiting))),
free as materialized (
  select q.job_id from holdfast.queue q
   where q.job_id = any (array (select job_id from live))
     for no key update skip locked),
routed as (
  update holdfast.signal set fresh = false
   where id = any (array (
     select f.id from fresh f
      where (f.id in (
        select w.id from waiting w
         where (w.job_id in (select job_id from live)) is true and (w.job_id in (select job_id from free)) is not true)) is not true))),
woken as (
  update holdfast.queue q
     set {wake}
   where q.job_id = any (array (select job_id from free)) and (q.token is not null or not q.woken)
  returning q.job_id, q.type, q.priority, q.gate, q.gate_at, q.token),
freed_partition as (
  select type, priority, gate, gate_at as since from woken where token is null),
signalled as (
  {signal_freed})
select job_id::text, type from woken where token is null;

-- name: signal_fresh
select 1 from holdfast.signal where fresh limit 1;

-- name: signal_waits
-- The open waits of live jobs, those of the oldest jobs first.
select s.job_id::text, j.chain_id::text, q.type,
       s.name || case when s.key <> '' then '[' || s.key || ']' when s.nth > 1 then '#' || s.nth else '' end, s.signal, s.signal_key,
       coalesce(holdfast.us(s.started_at), holdfast.us(j.created_at)), holdfast.us(s.until)
  from holdfast.step s
  join holdfast.queue q on q.job_id = s.job_id
  join holdfast.job j on j.id = s.job_id
 where s.state = 'open' and s.kind = 'wait'
 order by s.job_id, s.position
 limit :limit::integer;

-- name: signal_list
select id::text, name, key, data, given_id, broadcast, holdfast.us(at), holdfast.us(until), taken_by::text
  from holdfast.signal g
 order by g.id desc
 limit :limit::integer;

-- name: signal_unwanted
-- Of the oldest signals, those that nobody has taken for so long, and that nobody waits for.
select id::text, name, key, data, given_id, broadcast, holdfast.us(at), holdfast.us(until), taken_by::text
  from (select * from holdfast.signal order by id limit :look::integer) g
 where g.taken_by is null and not g.broadcast and g.until > holdfast.moment(:now::bigint)
   and g.at <= holdfast.moment(:now::bigint) - :after_ms::bigint * interval '1 ms'
   and not exists (
     select from holdfast.step s join holdfast.queue q on q.job_id = s.job_id
      where s.signal = g.name and s.signal_key = g.key and s.state = 'open' and s.kind = 'wait')
 order by g.id
 limit :limit::integer;

-- name: step_stranded
-- Of these jobs, the parked functions that nothing will wake: they have no time, and no open wait or edge.
select q.job_id::text, q.type
  from holdfast.queue q
 where q.job_id = any (array (select i::uuid from json_array_elements_text(:ids::json) i))
   and q.steps and q.token is null and q.available_at = 'infinity'
   and not exists (select from holdfast.step s where s.job_id = q.job_id and s.state = 'open' and s.kind = 'wait')
   and not exists (select from holdfast.blocker b where b.job_id = q.job_id and b.open)
 order by q.job_id;

-- name: step_latest
-- The last records of a job, in their order.
select s.job_id::text, s.name, s.key, s.nth, s.position, s.kind, s.state, s.output, s.error, s.arguments, s.undo, s.fence,
       holdfast.us(s.started_at), holdfast.us(s.finished_at), holdfast.us(s.until), s.signal, s.signal_key
  from (select * from holdfast.step
         where job_id = :job_id::uuid
         order by position desc, name desc, key desc, nth desc
         limit :limit::integer) s
 order by s.position, s.name, s.key, s.nth;

-- name: step_parked
-- What a parked function waits for.
select s.job_id::text, s.name, s.key, s.nth, s.position, s.kind, s.state, s.output, s.error, s.arguments, s.undo, s.fence,
       holdfast.us(s.started_at), holdfast.us(s.finished_at), holdfast.us(s.until), s.signal, s.signal_key
  from holdfast.step s
  join holdfast.queue q on q.job_id = s.job_id and q.token is null and q.woken = false
 where s.job_id = :job_id::uuid and s.state = 'open' and s.kind <> 'cursor'
 order by s.position, s.name, s.key, s.nth
 limit :limit::integer;

-- name: step_waiting
-- How many waits of each kind parked functions have, among the oldest that are open.
select s.kind, count(*)
  from (select job_id, kind from holdfast.step where state = 'open' order by job_id limit :look::integer) s
  join holdfast.queue q on q.job_id = s.job_id and q.token is null and q.woken = false
 where s.kind <> 'cursor'
 group by s.kind;

-- name: step_copy
-- Gives a new job records that another has; `step_copied` notes that it has some.
insert into holdfast.step ({step_columns})
select :job_id::uuid, x.name, x.key, x.nth, x.position, x.kind, x.state, x.output, x.error, x.arguments, x.undo, 0,
       to_timestamp(x.started_at / 1000000.0), to_timestamp(x.finished_at / 1000000.0), to_timestamp(x.until / 1000000.0),
       x.signal, x.signal_key
  from json_to_recordset(:rows::json) as x(
    name text, key text, nth integer, position integer, kind text, state text, output text, error text, arguments bigint, undo boolean,
    started_at bigint, finished_at bigint, until bigint, signal text, signal_key text);

-- name: step_copied
update holdfast.queue set steps = true where job_id = :job_id::uuid;
