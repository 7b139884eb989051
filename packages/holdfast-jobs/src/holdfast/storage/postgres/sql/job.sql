-- fragment: is_debounced
-- Of a job `j`; 0.1 had no column for it and wrote -1 blockers.
coalesce(j.debounced, j.blockers < 0)

-- fragment: is_ordered
-- Whether a live row `q` keeps its place in its queue; the version before leaves the column empty. That goes with the next release.
coalesce(q.ordered, q.rests_until is not null)

-- fragment: new_job_fields
-- What a start says of a job: the fields of `NewJob`. A new column of the job is added to the next five fragments.
id uuid, chain_id uuid, chain_index integer, type text, input text, priority smallint, at bigint, key text, trace text,
    max_attempts integer, blockers integer, version smallint, debounced boolean, context text

-- fragment: limited_job_fields
-- The same of jobs that may wait in a partition.
{new_job_fields}, gate text, ordered boolean, cost integer

-- fragment: limited_row
-- The live row of such a job `g`: in a partition its time is its place in the queue, unless it is blocked.
g.id, g.type, case when g.ordered then 5 else coalesce(g.priority, 5) end,
         case when coalesce(g.blockers, 0) > 0 then 'infinity'
              when g.gate is null then greatest(to_timestamp(g.at / 1000000.0), holdfast.moment(:now::bigint)) end,
         g.max_attempts, g.gate,
         case when g.gate is not null and coalesce(g.blockers, 0) = 0
              then greatest(to_timestamp(g.at / 1000000.0), holdfast.moment(:now::bigint)) end,
         g.ordered, case when g.ordered then holdfast.moment(:now::bigint) end, g.version

-- fragment: signal_placed
-- Signals for the partitions of new live rows, once they are due, to workers that read the jobs.
insert into holdfast.wakeup (type, priority, at, gate, since, version)
  select type, priority, min(gate_at), gate, min(gate_at), version from queued where gate_at is not null
   group by type, priority, gate, version

-- fragment: signal_freed
-- Signals for the partitions that rows left, or in whose queues they are free again. A queue without a key is never full.
insert into holdfast.wakeup (type, priority, at, gate, since)
  select type, priority, holdfast.moment(:now::bigint), gate, min(since) from freed_partition
   where gate is not null and (since is not null or gate <> type || '#') group by type, priority, gate

-- fragment: new_job_columns
id, chain_id, chain_index, type, input, priority, blockers, max_attempts, planned_at, key, trace, created_at,
    version, debounced, context

-- fragment: new_job_values
id, chain_id, coalesce(chain_index, 0), type, input, coalesce(priority, 5), coalesce(blockers, 0), max_attempts,
         to_timestamp(at / 1000000.0), key, trace, holdfast.moment(:now::bigint), version, debounced, context

-- fragment: new_job_params
-- The same of a single job, whose fields are parameters.
:id::uuid, :chain_id::uuid, :chain_index::integer, :type, :input, :priority::smallint, :blockers::integer,
          :max_attempts::integer, to_timestamp(:at::bigint / 1000000.0), :key, :trace, holdfast.moment(:now::bigint),
          :version::smallint, :debounced::boolean, :context

-- fragment: job_columns
-- A job as people see it, of the view `jobs`: the fields of `JobRecord`, in their order.
id::text, chain_id::text, chain_index, type, state, priority, input, key, trace, holdfast.us(created_at),
       holdfast.us(planned_at), holdfast.us(available_at), attempt, max_attempts, crashes, fence, locked_by,
       holdfast.us(locked_until), output, error, fingerprint, continued, holdfast.us(started_at), holdfast.us(finished_at),
       version, holdfast.us(expires_at), context

-- fragment: attempt_columns
job_id, fence, attempt, kind, worker, started_at, ended_at, error

-- fragment: continue_chain
-- Writes the successors of ended jobs, awaited if those were.
continued as (
  insert into holdfast.job ({new_job_columns}, cost)
  select {new_job_values}, cost from successor),
queued as (
  insert into holdfast.queue (job_id, type, priority, available_at, max_attempts, gate, gate_at, ordered, rests_until, version, awaited)
  select {limited_row}, g.awaited
    from successor g
  returning type, priority, gate, gate_at, version),
woken_next as (
  {signal_placed})

-- name: job_insert
-- Writes jobs, their live rows and the tally in one statement. A job whose id exists already is left alone and not
-- returned, so that a start repeated after an unknown commit is harmless.
with given as materialized (
  select * from json_to_recordset(:rows::json) as x(
    {new_job_fields})),
written as (
  insert into holdfast.job ({new_job_columns})
  select {new_job_values} from given
  on conflict (id) do nothing
  returning id, type, priority, blockers, max_attempts, planned_at, created_at, version),
queued as (
  insert into holdfast.queue (job_id, type, priority, available_at, max_attempts, version)
  select id, type, priority, case when blockers > 0 then 'infinity' else greatest(planned_at, created_at) end, max_attempts, version
    from written),
tallied as (
  insert into holdfast.tally (at, type, started)
  select holdfast.moment(:now::bigint), type, count(*) from written group by type)
-- On a connection that does not tell us of its commit the hint is part of the transaction: one NOTIFY per type.
select id::text, case when :channel::text is not null and row_number() over (partition by type order by id) = 1
                      then pg_notify(:channel, '[{"k":"due","t":' || to_json(type)::text || '}]') end
  from written;

-- name: job_insert_one
-- A start as it mostly is: what job_insert does, for a single job, at three quarters of its cost.
with written as (
  insert into holdfast.job ({new_job_columns})
  values ({new_job_params})
  on conflict (id) do nothing
  returning id, type, priority, blockers, max_attempts, planned_at, created_at, version),
queued as (
  insert into holdfast.queue (job_id, type, priority, available_at, max_attempts, version)
  select id, type, priority, case when blockers > 0 then 'infinity' else greatest(planned_at, created_at) end, max_attempts, version
    from written),
tallied as (
  insert into holdfast.tally (at, type, started) select created_at, type, 1 from written)
select id::text, case when :channel::text is not null
                      then pg_notify(:channel, '[{"k":"due","t":' || to_json(type)::text || '}]') end
  from written;

-- name: job_insert_new
-- The start of a chain without options, whose id was just made: nothing can conflict, nothing is read back or returned,
-- and few parameters travel. The hint is in a place where the planner keeps it although nobody reads it.
with written as (
  insert into holdfast.job (id, chain_id, chain_index, type, input, priority, blockers, trace, created_at)
  values (:id::uuid, :id::uuid, 0, :type, :input, 5, 0, :trace, holdfast.moment(:now::bigint))),
queued as (
  insert into holdfast.queue (job_id, type, priority, available_at)
  values (:id::uuid, :type, 5, holdfast.moment(:now::bigint)))
insert into holdfast.tally (at, type, started)
select holdfast.moment(:now::bigint), :type, 1
  from (select case when :channel::text is not null
                    then pg_notify(:channel, '[{"k":"due","t":' || to_json(:type::text)::text || '}]') end) hint;

-- name: job_insert_limited
-- What job_insert does, where some of the jobs wait in partitions. Two producers of one key do not wait for one another: each appends
-- a signal.
with given as materialized (
  select * from json_to_recordset(:rows::json) as x(
    {limited_job_fields})),
written as (
  insert into holdfast.job ({new_job_columns}, cost)
  select {new_job_values}, cost from given
  on conflict (id) do nothing
  returning id, type),
queued as (
  insert into holdfast.queue (job_id, type, priority, available_at, max_attempts, gate, gate_at, ordered, rests_until, version)
  select {limited_row}
    from given g where (g.id in (select id from written)) is true
  returning type, priority, gate, gate_at, version),
signalled as (
  {signal_placed}),
tallied as (
  insert into holdfast.tally (at, type, started)
  select holdfast.moment(:now::bigint), type, count(*) from written group by type)
select id::text, case when :channel::text is not null and row_number() over (partition by type order by id) = 1
                      then pg_notify(:channel, '[{"k":"due","t":' || to_json(type)::text || '}]') end
  from written;

-- fragment: claim_clock
-- The time of a claim, and how its transaction commits: a claim that is lost with the server was never made, so it need not
-- wait for the disk. Where a standby is awaited it waits as any write does: a primary that was cut off must grant nothing.
-- No fence is below the clock, and none of a promoted server is as low as any of the one before, wherever its clock is: the
-- clock's milliseconds have 42 bits, and the server's timeline is above them.
select holdfast.moment(:now::bigint) as now, holdfast.us(holdfast.moment(:now::bigint)) as us,
         holdfast.us(holdfast.moment(:now::bigint)) / 1000
           + ((coalesce((select i.fence_base from holdfast.identity i where i.only_row), 0) + holdfast.timeline()) << 42)
           as lowest_fence,
         case when :commit = 'lazy' or (:commit = 'auto' and current_setting('synchronous_standby_names') = '')
              then set_config('synchronous_commit', 'off', true) end as commit_level

-- fragment: claim_walk
-- Asks the queues in turn; inputs of newer versions than the worker reads are left alone. No claim is as large as the inner limit: it tells the planner that a queue is never read to its end.
from (
      select *, 0 as passed, share as wanted, false as again from type_queue
      union all
      select *, share, room - share, true from type_queue where share < room
      order by priority, again, place) t
   cross join lateral (
    select * from (
      select w.job_id, w.priority, w.available_at, w.crashes
        from holdfast.queue w
       where w.type = t.type and w.priority = t.priority
         and (w.available_at, w.job_id) > (t.after, t.after_id)
         and w.available_at <= (select now from clock)
         and w.token is null and (w.crashes = 0 or :allow_crashed::boolean) and (w.version > t.reads) is not true
       order by w.available_at, w.job_id
       limit 10000
       for update skip locked) free
    limit t.wanted offset t.passed) found
   order by t.priority, t.again, t.place

-- fragment: claim_answer
asked as (
  select id, chain_id, chain_index, input, blockers, trace, key, version, {is_debounced} as debounced, holdfast.us(created_at) as created_us, context
    from holdfast.job j
   where id = any (array (select job_id from claimed))
  offset 0)
select c.job_id, c.token, c.type, c.priority, holdfast.us(c.available_at), c.attempt, c.max_attempts, c.crashes, c.fence,
       a.chain_id, a.chain_index, a.input, a.blockers, a.trace, a.key, a.created_us, (select us from clock),
       a.version, a.debounced, null, c.failing, c.awaited, c.steps, holdfast.us(c.expires_at), a.context
  from claimed c full join asked a on a.id = c.job_id
 order by c.priority, c.available_at, c.job_id

-- name: job_claim
-- Takes due jobs under new leases. A queue is a type at a priority, polled from its low-water mark; a probe without a
-- priority means every queue that its type has. Queues are asked one after the other, the most urgent first, those of one
-- priority each for its share and then for the rest, and only until there are enough: what a claim reads and locks it takes,
-- however many types there are. Of jobs whose workers died it takes at most one. Rows locked by others are skipped, never
-- waited for, so two claimers never get the same job; a row that was freed between two turns may move what the second one
-- passes over, and is then named twice, which changes nothing. `= any (array (…))` keeps the primary-key plan whatever the
-- statistics say, and walks the index once for all rows. Only where a worker's types differ in their leases is a job's token
-- looked up. That every room lies in a range is no news, but by it the planner expects few probes: a plan that looks dear would
-- be compiled. A full join is always hashed or merged: a plan made while the queue was empty expects one row, and a nested loop
-- would read all inputs once per job.
with clock as materialized (
  {claim_clock}),
probe as materialized (
  select * from unnest(
    array (select json_array_elements_text(:types::json)), :priorities::smallint[], :type_tokens::uuid[], :rooms::integer[],
    :shares::integer[], :maxes::integer[], :afters::bigint[], :after_ids::uuid[], :reads::smallint[])
    with ordinality as p(type, priority, token, room, share, max_count, after, after_id, reads, place)
   where p.room between 1 and 1000000),
class as materialized (
  select * from json_to_recordset(:classes::json) as c(
    token uuid, lease_ms integer, max_attempts integer, backoff_base_ms integer, backoff_cap_ms integer)),
only_token as materialized (
  select (array_agg(token))[1] as token from class having count(*) = 1),
type_queue as materialized (
  select p.type, coalesce(p.priority, level.priority) as priority, p.place, p.room, p.share, p.max_count,
         to_timestamp(p.after / 1000000.0) as after, p.after_id, p.reads
    from probe p
    left join lateral (
      select l.priority
        from (select w.priority from holdfast.queue w
               where w.type = p.type and p.priority is null order by w.priority limit 1) most_urgent
        join unnest('{0,1,2,3,4,5,6,7,8,9}'::smallint[]) l(priority) on l.priority >= most_urgent.priority) level on true
   where p.priority is not null or level.priority is not null),
due as materialized (
  select t.type, t.max_count, found.*
    {claim_walk}
   limit :limit::integer + (select coalesce(sum(room), 0)::integer from type_queue where max_count is not null)),
surplus as (
  select job_id from (
    select job_id, max_count, row_number() over (partition by type order by priority, available_at, job_id) as place
      from due where max_count is not null) limited
   where place > max_count),
claimed as (
  update holdfast.queue q
     set attempt = q.attempt + 1,
         fence = greatest(q.fence + 1, (select lowest_fence from clock)),
         token = coalesce((select token from only_token),
                          (select p.token from probe p where p.type = q.type limit 1))
   where q.job_id = any (array (
     select job_id from due
      where (crashes = 0
         or job_id = (select job_id from due where crashes > 0 order by priority, available_at, job_id limit 1))
        and job_id <> all (array (select job_id from surplus))
      order by priority, available_at, job_id
      limit :limit::integer))
  returning q.job_id, q.token, q.type, q.priority, q.available_at, q.attempt, q.max_attempts, q.crashes, q.fence, q.failing,
            q.awaited, q.steps, q.expires_at),
leased as (
  insert into holdfast.lease (token, worker, claimed_at, expires_at, lease_ms, max_attempts, backoff_base_ms, backoff_cap_ms, job_ids)
  select c.token, :worker, clock.now, clock.now + c.lease_ms * interval '1 ms',
         c.lease_ms, c.max_attempts, c.backoff_base_ms, c.backoff_cap_ms, held.job_ids
    from (select token, array_agg(job_id) as job_ids from claimed group by token) held
    join class c on c.token = held.token cross join clock),
{claim_answer};

-- name: job_claim_queues
-- A claim as it mostly is, at two thirds of its cost: what job_claim does where all queues are known, no type has a limit of
-- its own, and all leases are alike.
with clock as materialized (
  {claim_clock}),
type_queue as materialized (
  select p.type, p.priority, p.place, p.room, p.share, to_timestamp(p.after / 1000000.0) as after, p.after_id, p.reads
    from unnest(
      array (select json_array_elements_text(:types::json)), :priorities::smallint[], :rooms::integer[], :shares::integer[],
      :afters::bigint[], :after_ids::uuid[], :reads::smallint[])
      with ordinality as p(type, priority, room, share, after, after_id, reads, place)
   where p.room between 1 and 1000000),
due as materialized (
  select found.*
    {claim_walk}
   limit :limit::integer),
claimed as (
  update holdfast.queue q
     set attempt = q.attempt + 1,
         fence = greatest(q.fence + 1, (select lowest_fence from clock)),
         token = :token::uuid
   where q.job_id = any (array (
     select job_id from due
      where crashes = 0
         or job_id = (select job_id from due where crashes > 0 order by priority, available_at, job_id limit 1)))
  returning q.job_id, q.token, q.type, q.priority, q.available_at, q.attempt, q.max_attempts, q.crashes, q.fence, q.failing,
            q.awaited, q.steps, q.expires_at),
leased as (
  insert into holdfast.lease (token, worker, claimed_at, expires_at, lease_ms, max_attempts, backoff_base_ms, backoff_cap_ms, job_ids)
  select :token::uuid, :worker, clock.now, clock.now + :lease_ms::integer * interval '1 ms',
         :lease_ms::integer, :max_attempts::integer, :backoff_base_ms::integer, :backoff_cap_ms::integer, held.job_ids
    from (select array_agg(job_id) as job_ids from claimed having count(*) > 0) held cross join clock),
{claim_answer};

-- name: job_next_due
-- In how many microseconds the next free job of these types becomes due, or became so less than :back_us ago. Walks only the
-- priorities that a type has, each with one step along the claim's index. (Of an array the planner expects ten elements, of
-- JSON a hundred, and of each several priorities: it would believe this dear enough to be compiled.) If the first one is newer than
-- the worker reads, more are looked at, and if those are too, it is worth a look when the last of them is due.
with recursive type_queue as (
  select t.type, t.reads, -1::smallint as priority
    from unnest(array (select json_array_elements_text(:types::json)),
                array (select json_array_elements_text(:reads::json)::smallint)) t(type, reads)
  union all
  select l.type, l.reads, found.priority
    from type_queue l cross join lateral (
      select w.priority from holdfast.queue w
       where w.type = l.type and w.priority > l.priority
       order by w.priority
       limit 1) found)
select holdfast.us(min(case when (next.version > l.reads) is not true then next.available_at else (
         select coalesce(min(x.available_at) filter (where (x.version > l.reads) is not true),
                         case when count(*) = 50 then max(x.available_at) end)
           from (
             {next_of_queue}
              limit 50) x) end)) - holdfast.us(holdfast.moment(:now::bigint))
  from type_queue l
 cross join lateral (
   {next_of_queue}
    limit 1) next
 where l.priority >= 0;

-- fragment: next_of_queue
select w.available_at, w.version from holdfast.queue w
    where w.type = l.type and w.priority = l.priority and w.token is null
      and w.available_at > holdfast.moment(:now::bigint) - :back_us::bigint * interval '1 microsecond'
      and w.available_at < 'infinity'
    order by w.available_at

-- fragment: drop_freed
-- Removes leases whose jobs have ended, as far as their worker was told. What an asynchronous standby never got is held again after a
-- failover, by a token whose lease has to stay until it expires. Each job is looked up by its key.
delete from holdfast.lease l
   where l.token = any (:freed::uuid[])
     and not exists (select from holdfast.queue q where q.job_id = any (l.job_ids) and q.token = l.token offset 0)

-- name: job_finish
-- Ends, continues or gives back attempts, all kinds in one statement. Each row is proven by its own (job, token) pair; what
-- is not returned was lost or is locked by another transaction and is asked for with job_lease_status. Jobs that other jobs wait
-- for are taken only when :awaited is true, because the fan-in that follows needs the same transaction. What is compared with
-- the whole flush is hashed, however few rows a plan made on an empty queue expects: `(… in (…)) is true` cannot become a join,
-- and a full join not a nested loop.
with given as materialized (
  select * from json_to_recordset(:rows::json) as x(
    id uuid, token uuid, kind text, worker text, started_at bigint, output text, error text, fingerprint text, delay_ms bigint, next json,
    rest boolean)),
held as (
  select q.job_id, q.token from holdfast.queue q
   where q.job_id = any (array (select id from given))
     and ((q.job_id, q.token) in (select id, token from given)) is true
     and (:awaited::boolean or not q.awaited)
   for update skip locked),
mine as materialized (
  select * from given where ((id, token) in (select job_id, token from held)) is true),
ended as (
  delete from holdfast.queue q
   where q.job_id = any (array (select id from mine where kind in ('complete', 'continue', 'fail', 'cancel')))
  returning q.job_id, q.type, q.attempt, q.crashes, q.fence, q.awaited, q.priority, q.gate, q.gate_at,
            {is_ordered} as ordered),
back as materialized (
  select array_agg(id) as ids, array_agg(kind) as kinds, array_agg(coalesce(delay_ms, 0)) as delays
    from mine where kind in ('retry', 'snooze', 'release')),
-- Looked up by place: a join beside `= any (array (…))` would look for every row of the flush once per row of the flush.
returned as (
  update holdfast.queue q
     set token = null, woken = null,
         (attempt, crashes, available_at, gate_at, rests_until) = (
           -- An attempt that came to an end of its own killed nobody.
           select q.attempt - (back.kinds[place] <> 'retry')::integer,
                  case when back.kinds[place] = 'release' then q.crashes else 0 end,
                  case when q.gate is not null then null when back.kinds[place] = 'release' then q.available_at
                       else holdfast.moment(:now::bigint) + back.delays[place] * interval '1 ms' end,
                  case when back.kinds[place] = 'release' or q.gate is null or {is_ordered} then q.gate_at
                       else holdfast.moment(:now::bigint) + back.delays[place] * interval '1 ms' end,
                  case when back.kinds[place] = 'release' or not {is_ordered} then q.rests_until
                       else holdfast.moment(:now::bigint) + back.delays[place] * interval '1 ms' end
             from back cross join lateral array_position(back.ids, q.job_id) place)
   where q.job_id = any (array (select unnest(ids) from back))
  returning q.job_id, q.type, q.attempt, q.fence, q.awaited, q.priority, q.gate, q.gate_at),
written as materialized (
  select m.*, w.type, w.attempt, w.crashes, w.fence, w.awaited, w.has_ended, w.gate, w.place_at
    from mine m
    full join (
      select job_id, type, attempt, crashes, fence, awaited, true as has_ended, gate,
             case when ordered then gate_at end as place_at from ended
      union all
      select job_id, type, attempt, null, fence, awaited, false, gate, null from returned) w on w.job_id = m.id),
kept as (
  insert into holdfast.outcome (job_id, type, state, continued, output, error, fingerprint, attempts, crashes, fence, token, worker, started_at, finished_at, gate, gate_at)
  select id, type, case when kind = 'fail' then 'failed' when kind = 'cancel' then 'cancelled' else 'completed' end, kind = 'continue',
         output, error, fingerprint, attempt, crashes, fence, token, worker,
         to_timestamp(started_at / 1000000.0), holdfast.moment(:now::bigint),
         case when kind = 'fail' then gate end, case when kind = 'fail' then place_at end
    from written where has_ended),
freed_partition as (
  select type, priority, gate, null::timestamptz as since from ended
  union all
  select type, priority, gate, gate_at from returned),
signalled as (
  {signal_freed}),
rested as (
  insert into holdfast.limit_setting as s (id, rests_until, reason, changed_at)
  select gate, max(holdfast.moment(:now::bigint) + coalesce(delay_ms, 0) * interval '1 ms'), max(error), holdfast.moment(:now::bigint)
    from written where rest and not has_ended and gate is not null group by gate order by gate
  on conflict (id) do update
     set rests_until = greatest(s.rests_until, excluded.rests_until), reason = excluded.reason, changed_by = null,
         changed_at = excluded.changed_at),
remembered as (
  insert into holdfast.attempt ({attempt_columns})
  select id, fence, attempt + (kind = 'snooze')::integer, kind, worker,
         to_timestamp(started_at / 1000000.0), holdfast.moment(:now::bigint), error
    from written where kind in ('fail', 'retry') or (kind = 'snooze' and error is not null)
  on conflict do nothing),
successor as materialized (
  select x.*, w.awaited from written w
   cross join lateral json_to_record(w.next) as x(
    {limited_job_fields})
   where w.kind = 'continue'),
{continue_chain},
freed as (
  {drop_freed}),
tallied as (
  insert into holdfast.tally (at, type, started, completed, failed, cancelled, retried)
  select holdfast.moment(:now::bigint), type, sum(started), sum(completed), sum(failed), sum(cancelled), sum(retried)
    from (
      select type, 0 as started, (kind in ('complete', 'continue'))::integer as completed, (kind = 'fail')::integer as failed,
             (kind = 'cancel')::integer as cancelled, (kind = 'retry')::integer as retried
        from written where kind not in ('snooze', 'release')
      union all select type, 1, 0, 0, 0, 0 from successor) counted
   group by type)
select id::text, type, awaited from written;

-- name: job_park
-- Gives back functions that have come to a wait. They are due at their time, or at once if what they wait for has happened meanwhile:
-- whoever makes it happen after this snapshot finds the row parked, or has left its mark there before it was locked. It is no
-- attempt, and keeps the count of killed workers: what parks has not come to its end.
with given as materialized (
  select * from json_to_recordset(:rows::json) as x(id uuid, token uuid, until bigint, ignores integer[])),
held as (
  select q.job_id from holdfast.queue q
   where q.job_id = any (array (select id from given))
     and ((q.job_id, q.token) in (select id, token from given)) is true
     and (:awaited::boolean or not q.awaited)
   for no key update skip locked),
parked as (
  update holdfast.queue q
     set token = null, attempt = q.attempt - 1,
         (available_at, gate_at, rests_until, woken) = (
           select case when q.gate is null or (to_be.at = 'infinity' and not {is_ordered}) then to_be.at end,
                  case when q.gate is null or {is_ordered} then q.gate_at when to_be.at < 'infinity' then to_be.at end,
                  case when {is_ordered} then to_be.at else q.rests_until end,
                  case when to_be.at > holdfast.moment(:now::bigint) then false end
             from (
               select case when q.woken or exists (
                             select from holdfast.step s
                              where s.job_id = q.job_id and s.state = 'open' and (s.position = any (g.ignores)) is not true
                                and {has_happened}) then holdfast.moment(:now::bigint)
                           else coalesce(to_timestamp(g.until / 1000000.0), 'infinity') end as at
                 from given g where g.id = q.job_id and g.token = q.token
                limit 1) to_be)
   where q.job_id = any (array (select job_id from held))
  returning q.job_id, q.type, q.awaited, q.priority, q.gate, q.gate_at),
freed_partition as (
  select type, priority, gate, gate_at as since from parked),
signalled as (
  {signal_freed}),
freed as (
  {drop_freed})
select job_id::text, type, awaited from parked;

-- fragment: is_proven
-- Whether a live row `q` is one of the `given` jobs and bears the token that its completion brings.
((q.job_id, q.token) in (select id, token from given)) is true and (:awaited::boolean or not q.awaited)

-- fragment: is_untouched
-- Whether no other transaction has locked a live row `q` since its claim, which locked it too: `xmax` names nobody, or the claim.
(q.xmax = '0' or q.xmax = q.xmin)

-- fragment: complete_held
-- What is untouched is deleted at once: to lock it first would be a second look-up, and a second record in the log. Should another
-- transaction lock a row in that very moment, it is waited for, in the order of ids as everywhere, and the row has to prove itself
-- again. Only if one was touched are such rows looked for, and taken as far as they are free.
given as materialized (
  select x.id, (select :tokens::uuid[])[x.token_number] as token, x.started_at, x.output
    from unnest(:ids::uuid[], :token_numbers::integer[], :started_at::bigint[],
                array (select json_array_elements_text(:outputs::json))) as x(id, token_number, started_at, output)),
held as (
  select q.job_id from holdfast.queue q
   where q.job_id = any (array (select id from given)) and {is_proven} and not {is_untouched}
   for update skip locked),
ended as (
  delete from holdfast.queue q
   where q.job_id = any (array (select id from given)) and {is_proven}
     and ({is_untouched} or q.job_id = any (array (select job_id from held)))

-- fragment: complete_kept
kept as (
  insert into holdfast.outcome (job_id, type, state, output, attempts, crashes, fence, token, worker, started_at, finished_at)
  select job_id, type, 'completed', output, attempt, crashes, fence, token, :worker,
         'epoch'::timestamptz + started_at * interval '1 microsecond', holdfast.moment(:now::bigint)
    from (
      select e.*, g.output, g.started_at from ended e full join given g on g.id = e.job_id and g.token = e.token
      offset 0) paired
   where job_id is not null),
freed as (
  {drop_freed}),
counted as (
  select type, awaited, count(*) as number, array_agg(job_id) as ids from ended group by type, awaited),
tallied as (
  insert into holdfast.tally (at, type, completed) select holdfast.moment(:now::bigint), type, number from counted)

-- name: job_complete
-- A flush as it mostly is: every attempt completed its job. What job_finish would do, at two thirds of its cost, and hashed as there.
-- Where all of them are of one type, their ids are known.
with {complete_held}
  returning q.job_id, q.type, q.attempt, q.crashes, q.fence, q.token, q.awaited),
{complete_kept}
select case when number < (select count(*) from given) then ids::text end, type, awaited from counted;

-- name: job_complete_one
-- The same of a single job that nobody awaits: a flush where jobs come one by one.
with ended as (
  delete from holdfast.queue q
   where q.job_id = :id::uuid and q.token = :token::uuid and not q.awaited
     and ({is_untouched} or q.job_id = (
       select h.job_id from holdfast.queue h where h.job_id = :id::uuid and h.token = :token::uuid for update skip locked))
  returning q.job_id, q.type, q.attempt, q.crashes, q.fence, q.token),
kept as (
  insert into holdfast.outcome (job_id, type, state, output, attempts, crashes, fence, token, worker, started_at, finished_at)
  select job_id, type, 'completed', :output, attempt, crashes, fence, token, :worker,
         'epoch'::timestamptz + :started_at::bigint * interval '1 microsecond', holdfast.moment(:now::bigint)
    from ended),
freed as (
  {drop_freed})
insert into holdfast.tally (at, type, completed) select holdfast.moment(:now::bigint), type, 1 from ended
returning type;

-- name: job_drop
-- The same of jobs of which nothing is kept. Each is a whole chain without a key, which came through no partition and waited for nothing;
-- what earlier attempts left goes with it.
with {complete_held}
  returning q.job_id, q.type),
tried as (delete from holdfast.attempt where job_id = any (array (select job_id from ended))),
told as (delete from holdfast.progress where job_id = any (array (select job_id from ended))),
emitted as (delete from holdfast.output where chain_id = any (array (select job_id from ended))),
removed as (delete from holdfast.job where id = any (array (select job_id from ended))),
freed as (
  {drop_freed}),
tallied as (
  insert into holdfast.tally (at, type, removed) select holdfast.moment(:now::bigint), type, count(*) from ended group by type)
select job_id::text, type, false from ended;

-- name: job_complete_limited
-- The same where some of the jobs came through partitions, which are polled again.
with {complete_held}
  returning q.job_id, q.type, q.attempt, q.crashes, q.fence, q.token, q.awaited, q.priority, q.gate),
{complete_kept},
freed_partition as (
  select type, priority, gate, null::timestamptz as since from ended),
signalled as (
  {signal_freed})
select case when number < (select count(*) from given) then ids::text end, type, awaited from counted;

-- name: job_lease_status
-- What became of (job, token) pairs that a finish or a heartbeat did not find. Each is looked up by its key: joined as whole
-- tables, a plan made while they were small reads all of them.
select x.id::text, x.token::text,
       case when q.token = x.token then 'held' when o.token = x.token then 'done'
            when o.job_id is not null then 'ended' when q.token is not null then 'taken'
            when q.job_id is not null then 'free' else 'gone' end,
       o.state
  from json_to_recordset(:rows::json) as x(id uuid, token uuid)
  left join lateral (select w.job_id, w.token from holdfast.queue w where w.job_id = x.id offset 0) q on true
  left join lateral (select e.job_id, e.token, e.state from holdfast.outcome e where e.job_id = x.id offset 0) o on true;

-- name: job_lock
-- Locks live rows in id order; the waiting is bounded by lock_timeout. Cancel, complete from outside and delete begin here.
select q.job_id::text from holdfast.queue q
 where q.job_id = any (array (select i::uuid from json_array_elements_text(:ids::json) i))
 order by q.job_id
   for update;

-- name: job_set_expiry
-- When jobs that this transaction has just started are given up: at a time, or so long from now.
update holdfast.queue q
   set expires_at = case when x.after_ms is null then to_timestamp(x.at / 1000000.0)
                         else holdfast.moment(:now::bigint) + x.after_ms * interval '1 ms' end
  from json_to_recordset(:rows::json) as x(job_id uuid, at bigint, after_ms bigint)
 where q.job_id = x.job_id;

-- name: job_expired
-- Locks jobs whose time is over before they began, in a queue or blocked; what is claimed or locked at this moment is passed over.
select q.job_id::text from holdfast.queue q
 where q.expires_at <= holdfast.moment(:now::bigint) and q.token is null and q.failing is null and q.steps is null
 order by q.expires_at
 limit :limit::integer
   for update skip locked;

-- name: job_unhandled
-- Locks jobs of one type that have been due for so long, in a queue or not; what is claimed or locked at this moment is passed over.
select q.job_id::text from holdfast.queue q
 where q.type = :type and q.token is null
   and case when q.gate_at is null then q.available_at else greatest(q.gate_at, q.rests_until) end
         <= holdfast.moment(:now::bigint) - :after_ms::bigint * interval '1 ms'
 order by q.job_id
 limit :limit::integer
   for update skip locked;

-- name: job_end
-- Ends live jobs from outside, regardless of their holder: the row goes, so the token is void.
with given as materialized (
  select * from json_to_recordset(:rows::json) as x(
    id uuid, state text, output text, error text, fingerprint text, next json, fanned_out boolean)),
ended as (
  delete from holdfast.queue q where q.job_id = any (array (select id from given))
  returning q.job_id, q.type, q.available_at, q.attempt, q.crashes, q.fence, q.token, q.awaited, q.priority, q.gate, q.gate_at,
            {is_ordered} as ordered),
freed_partition as (
  select type, priority, gate, null::timestamptz as since from ended),
signalled as (
  {signal_freed}),
kept as (
  insert into holdfast.outcome (job_id, type, state, continued, output, error, fingerprint, attempts, crashes, fence, worker, started_at, finished_at, gate, gate_at, fanned_out)
  select e.job_id, e.type, g.state, g.next is not null, g.output, g.error, g.fingerprint, e.attempt, e.crashes, e.fence, l.worker,
         l.claimed_at, holdfast.moment(:now::bigint), case when g.state = 'failed' then e.gate end,
         case when g.state = 'failed' and e.ordered then e.gate_at end, g.fanned_out
    from ended e join given g on g.id = e.job_id left join holdfast.lease l on l.token = e.token),
successor as materialized (
  select x.*, e.awaited from given g
    join ended e on e.job_id = g.id
   cross join lateral json_to_record(g.next) as x(
    {limited_job_fields})
   where g.next is not null),
{continue_chain},
tallied as (
  insert into holdfast.tally (at, type, started, completed, failed, cancelled)
  select holdfast.moment(:now::bigint), type, sum(started), sum(completed), sum(failed), sum(cancelled)
    from (
      select e.type, 0 as started, (g.state = 'completed')::integer as completed, (g.state = 'failed')::integer as failed,
             (g.state = 'cancelled')::integer as cancelled
        from ended e join given g on g.id = e.job_id where g.fanned_out is null
      union all select e.type, -1, 0, 0, 0 from ended e join given g on g.id = e.job_id where g.fanned_out
      union all select s.type, 1, 0, 0, 0 from successor s) counted
   group by type)
select e.job_id::text, j.chain_id::text, e.type,
       case when e.token is not null then 'running' when e.available_at = 'infinity' then 'blocked' else 'pending' end,
       l.worker, e.awaited
  from ended e join holdfast.job j on j.id = e.job_id left join holdfast.lease l on l.token = e.token;

-- name: job_trigger
-- Makes pending jobs due now. Locked rows are being claimed or ended and are skipped.
with free as (
  select q.job_id from holdfast.queue q
   where q.job_id = any (array (select i::uuid from json_array_elements_text(:ids::json) i))
     and q.token is null and (q.gate_at is not null or q.available_at < 'infinity')
   order by q.job_id
   for update skip locked),
moved as (
  update holdfast.queue q
     set available_at = case when q.gate is null then holdfast.moment(:now::bigint) end,
         gate_at = case when {is_ordered} then least(q.gate_at, holdfast.moment(:now::bigint))
                        when q.gate is not null then holdfast.moment(:now::bigint) end,
         rests_until = case when {is_ordered} then holdfast.moment(:now::bigint) end
   where q.job_id = any (array (select job_id from free))
  returning q.job_id, q.type, q.priority, q.gate, q.gate_at),
freed_partition as (
  select type, priority, gate, gate_at as since from moved),
signalled as (
  {signal_freed})
select job_id::text, type from moved;

-- fragment: requeue
-- Gives the jobs that were `taken` from the outcomes their live rows again: the fence only grows, the history stays.
spread as (
  select t.*, row_number() over (order by t.job_id) - 1 as place from taken t),
-- One that failed with a chain may wait for others: it is blocked again. Who ends such a chain waits for this lock, or we for the end.
waiting as materialized (
  select b.job_id from holdfast.blocker b
   where b.job_id = any (array (select job_id from taken where failing is null)) and b.open and b.step is null
   order by b.job_id, b.position for update),
queued as (
  insert into holdfast.queue (job_id, type, priority, available_at, attempt, max_attempts, fence, awaited, gate, gate_at, ordered,
                              rests_until, failing, steps, version)
  select s.job_id, s.type, case when s.gate_at is null then j.priority else 5 end,
         case when d.is_blocked then 'infinity' when s.gate is null then d.at end, s.attempts, j.max_attempts, s.fence,
         exists (select from holdfast.blocker b where b.chain_id = j.chain_id and b.open),
         s.gate, case when s.gate is not null and not d.is_blocked then coalesce(s.gate_at, d.at) end, s.gate_at is not null,
         case when s.gate_at is not null then d.at end, s.failing,
         case when exists (select from holdfast.step r where r.job_id = s.job_id) then true end, j.version
    from spread s join holdfast.job j on j.id = s.job_id
   cross join lateral (
     select holdfast.moment(:now::bigint) + s.place * :spacing_us::bigint * interval '1 microsecond' as at,
            (s.job_id in (select job_id from waiting)) is true as is_blocked) d
  returning job_id, type, priority, gate, gate_at, version),
signalled as (
  {signal_placed}),
tallied as (
  insert into holdfast.tally (at, type, failed)
  select holdfast.moment(:now::bigint), type, -count(*) from queued group by type)

-- name: job_redrive
-- Takes failed jobs back into the queue: attempts and crashes begin anew. What failed of a function is done again, and what was undone;
-- the rest of its records stay.
with taken as (
  delete from holdfast.outcome o
   where o.job_id = any (array (select i::uuid from json_array_elements_text(:ids::json) i)) and o.state = 'failed'
  returning o.job_id, o.type, o.fence, o.gate, o.gate_at, 0 as attempts, null::boolean as failing),
forgotten as (
  delete from holdfast.failing f
   where f.job_id = any (array (select i::uuid from json_array_elements_text(:ids::json) i))),
undone as (
  delete from holdfast.step s
   where s.job_id = any (array (select job_id from taken))
     and (s.kind in ('failure', 'undo') or (s.state = 'failed' and s.kind in ('step', 'run'))
          or (s.undo and exists (
                select from holdfast.step u
                 where u.job_id = s.job_id and u.name = 'undo:' || s.name and u.key = s.key and u.nth = s.nth
                   and u.kind = 'undo' and u.state = 'done')))
  returning s.job_id, s.kind, s.position),
unbound as (
  delete from holdfast.blocker b using undone u where u.kind = 'run' and b.job_id = u.job_id and b.step = u.position),
{requeue}
select job_id::text, type from queued;

-- name: on_failed_list
select type from holdfast.on_failed;

-- name: on_failed_declare
insert into holdfast.on_failed (type) select json_array_elements_text(:types::json) on conflict do nothing;

-- name: on_failed_defer
-- Takes jobs that have just failed back into the queue, if their type has `on_failed`: a worker calls it in the transaction that
-- fails them again. Not if it was tried so often already, or if no worker took the job since the last time: those have failed, after
-- as many attempts as they had of their own.
with given as materialized (
  select o.job_id, o.fence, f.attempt, f.job_id is null or (o.attempts > f.attempt and o.attempts < f.attempt + :tries::integer) as is_taken
    from holdfast.outcome o
    join holdfast.on_failed t on t.type = o.type
    left join holdfast.failing f on f.job_id = o.job_id
   where o.job_id = any (array (select i::uuid from json_array_elements_text(:ids::json) i)) and o.state = 'failed'),
settled as (
  update holdfast.outcome o set attempts = g.attempt from given g
   where o.job_id = any (array (select job_id from given where not is_taken)) and g.job_id = o.job_id),
-- The call was no attempt of the job.
forgotten as (
  delete from holdfast.attempt a using given g
   where a.job_id = any (array (select job_id from given where not is_taken)) and g.job_id = a.job_id
     and a.fence = g.fence and a.attempt > g.attempt and a.kind = 'fail'),
taken as (
  delete from holdfast.outcome o
   where o.job_id = any (array (select job_id from given where is_taken))
  returning o.job_id, o.type, o.fence, o.gate, o.gate_at, o.attempts, o.error, o.fingerprint, true as failing),
marked as (
  insert into holdfast.failing (job_id, attempt, error, fingerprint)
  select job_id, attempts, error, fingerprint from taken
  on conflict do nothing),
{requeue}
select job_id::text, type from queued;

-- name: on_failed_of
select attempt, error, fingerprint from holdfast.failing where job_id = :id::uuid;

-- name: job_get
select {job_columns}
  from holdfast.jobs
 where id = any (array (select i::uuid from json_array_elements_text(:ids::json) i))
 order by id;

-- name: job_walk
-- The newest jobs before an id. A list looks at so many at once and keeps what fits, so no question reads the whole table.
-- The order names the table, because the output's name means a text, which no index is ordered by.
select id::text
  from holdfast.job j
 where j.id < coalesce(:before::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
 order by j.id desc
 limit :limit::integer;

-- name: job_walk_live
-- The same of what has not ended.
select job_id::text
  from holdfast.queue q
 where q.job_id < coalesce(:before::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
 order by q.job_id desc
 limit :limit::integer;

-- name: job_walk_running
-- The same of what leases name; some of it may have ended.
select id::text
  from (select distinct unnest(job_ids) as id from holdfast.lease) held
 where held.id < coalesce(:before::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
 order by held.id desc
 limit :limit::integer;

-- name: job_walk_blocked
-- The same of what is blocked, queue by queue along the index of the queues (which any comparison of the type makes usable), so
-- that what is due is not read.
with recursive type_queue as (
  (select type, priority from holdfast.queue where type >= '' order by type, priority limit 1)
  union all
  select found.type, found.priority
    from type_queue l cross join lateral (
      select w.type, w.priority from holdfast.queue w
       where (w.type, w.priority) > (l.type, l.priority) and w.type >= l.type
       order by w.type, w.priority
       limit 1) found
   where l.priority between 0 and 9)
select blocked.job_id::text
  from type_queue l
 cross join lateral (
   select w.job_id from holdfast.queue w
    where w.type = l.type and w.priority = l.priority and w.available_at = 'infinity'
      and w.job_id < coalesce(:before::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
    order by w.job_id desc
    limit :limit::integer) blocked
 order by blocked.job_id desc
 limit :limit::integer;

-- name: job_walk_not_completed
-- The same of what failed or was cancelled.
select job_id::text
  from holdfast.outcome o
 where o.state in ('failed', 'cancelled')
   and o.job_id < coalesce(:before::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
 order by o.job_id desc
 limit :limit::integer;

-- name: job_walk_chain
-- The same of one chain.
select id::text
  from holdfast.job j
 where chain_id = :chain::uuid
   and j.id < coalesce(:before::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
 order by j.id desc
 limit :limit::integer;

-- name: job_walk_blocker
-- The same of what waits, or waited, for one chain.
select distinct on (b.job_id) job_id::text
  from holdfast.blocker b
 where b.chain_id = :blocker::uuid
   and b.job_id < coalesce(:before::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
 order by b.job_id desc
 limit :limit::integer;

-- name: job_walk_key
-- The same of what was started under one key.
select id::text
  from holdfast.job j
 where key = :key
   and j.id < coalesce(:before::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
 order by j.id desc
 limit :limit::integer;

-- name: job_ids_like
-- Ids that begin with these digits, or that end with them among the newest: no index leads to an end.
select id::text
  from (
    (select id from holdfast.job where id between :first::uuid and :last::uuid and (id = chain_id or not :chains::boolean)
      order by id desc limit :limit::integer)
    union
    (select id from (select id, chain_id from holdfast.job order by id desc limit :newest::integer) recent
      where right(replace(id::text, '-', ''), length(:digits)) = :digits and (id = chain_id or not :chains::boolean)
      limit :limit::integer)) found
 order by id desc
 limit :limit::integer;

-- name: job_made
-- When a job was made.
select holdfast.us(created_at) from holdfast.job where id = :id::uuid;

-- name: job_type_known
-- Whether any job of such a type was ever started: where none was, there is nothing to look for.
select 1
  from holdfast.tally
 where (:types::json is null or type in (select json_array_elements_text(:types::json)))
   and (:type_like::text is null or type like :type_like)
 limit 1;

-- name: job_walk_context
-- The same of what was started in a context with this value.
select job_id::text
  from holdfast.job_context c
 where c.name = :context_name and c.value = :context_value
   and c.job_id < coalesce(:before::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
 order by c.job_id desc
 limit :limit::integer;

-- name: job_context_names
-- The names that contexts have, by one seek each.
with recursive known as (
  (select name from holdfast.job_context order by name limit 1)
  union all
  select (select c.name from holdfast.job_context c where c.name > k.name order by c.name limit 1)
    from known k where k.name is not null)
select name from known where name is not null limit 100;

-- fragment: job_conditions
-- Every filter is optional. A word may be anywhere in what people know a job by: jobs without it are left out before the rest is
-- read of them. Lower case is compared because ILIKE would turn the words into it again for every row.
j.id = any (case when :words::json is null
         then array (select i::uuid from json_array_elements_text(:ids::json) i)
         else array (
           select t.id from holdfast.job t left join holdfast.outcome o on o.job_id = t.id
            where t.id = any (array (select i::uuid from json_array_elements_text(:ids::json) i))
              and lower(concat_ws(e'\n', t.type, t.key, o.error, t.id::text)) like all (array (
                    select lower(w) from json_array_elements_text(:words::json) w))) end)
   and (:states::json is null or state in (select json_array_elements_text(:states::json)))
   and (:types::json is null or type in (select json_array_elements_text(:types::json)))
   and (:type_like::text is null or type like :type_like)
   and (:chain::uuid is null or chain_id = :chain::uuid)
   and (:blocker::uuid is null or exists (
         select from holdfast.blocker b where b.job_id = j.id and b.chain_id = :blocker::uuid))
   and (:key::text is null or key = :key)
   and (:key_like::text is null or key like :key_like)
   and (:error_like::text is null or error ilike :error_like)
   and (:fingerprint::text is null or fingerprint = :fingerprint)
   and (:worker::text is null or locked_by = :worker)
   and (:step::text is null or exists (select from holdfast.step s where s.job_id = j.id and s.name = :step))
   and (:context::json is null or not exists (
         select from json_each_text(:context::json) e
          where not exists (
            select from holdfast.job_context c where c.name = e.key and c.value = e.value and c.job_id = j.id)))
   and (:waiting::text is null or exists (
         select from holdfast.step s join holdfast.queue w on w.job_id = s.job_id
          where s.job_id = j.id and s.state = 'open' and s.kind = 'wait' and s.signal = :waiting))
   and (:attempt_min::bigint is null or attempt >= :attempt_min::bigint)
   and (:attempt_max::bigint is null or attempt <= :attempt_max::bigint)
   and (:age_min_ms::bigint is null or created_at <= holdfast.moment(:now::bigint) - :age_min_ms::bigint * interval '1 ms')
   and (:age_max_ms::bigint is null or created_at >= holdfast.moment(:now::bigint) - :age_max_ms::bigint * interval '1 ms')

-- name: job_list
-- Those of these jobs that fit, the newest first.
select {job_columns}
  from holdfast.jobs j
 where {job_conditions}
 order by j.id desc
 limit :limit::integer;

-- name: job_matching
-- The same without what is large.
select j.id::text, type
  from holdfast.jobs j
 where {job_conditions}
 order by j.id desc
 limit :limit::integer;

-- name: job_crashed_before
-- How many jobs whose worker died are before this one in its queue: a worker takes one such job at a time. Those of one crash
-- become due together, so the nearest are enough.
select count(*) filter (where near.crashes > 0)
  from holdfast.queue q
 cross join lateral (
    (select w.crashes from holdfast.queue w
      where w.type = q.type and w.priority = q.priority and (w.available_at, w.job_id) < (q.available_at, q.job_id)
      order by w.available_at desc, w.job_id desc
      limit 1000)
    union all
    (select w.crashes from holdfast.queue w
      where w.gate = q.gate and w.priority = q.priority and (w.gate_at, w.job_id) < (q.gate_at, q.job_id)
      order by w.gate_at desc, w.job_id desc
      limit 1000)) near
 where q.job_id = :id::uuid;

-- name: job_last_errors
-- How the last attempts of jobs ended that are to be tried again.
select a.job_id::text, a.error
  from unnest(array (select i::uuid from json_array_elements_text(:ids::json) i)) wanted(id)
 cross join lateral (
    select job_id, error from holdfast.attempt where job_id = wanted.id order by fence desc, attempt desc limit 1) a;

-- name: job_attempts
select job_id::text, attempt, fence, kind, worker, holdfast.us(started_at), holdfast.us(ended_at), error
  from holdfast.attempt
 where job_id = :id::uuid
 order by fence, attempt;
