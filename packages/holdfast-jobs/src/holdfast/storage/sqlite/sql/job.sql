-- fragment: is_debounced
-- Of a job `j`; 0.1 had no column for it and wrote -1 blockers.
coalesce(j.debounced, j.blockers < 0)

-- fragment: is_ordered
-- Whether a live row keeps its place in its queue; the version before leaves the column empty. That goes with the next release.
coalesce(ordered, rests_until is not null)

-- fragment: new_job_columns
-- A new column of the job is added to the next three fragments.
id, chain_id, chain_index, type, input, priority, blockers, max_attempts, planned_at, key, trace, created_at,
    version, debounced, context, cost

-- fragment: new_job_values
-- What a start says of a job, in the same order: the fields of `NewJob`.
json_extract(value, '$.id'), json_extract(value, '$.chain_id'), coalesce(json_extract(value, '$.chain_index'), 0),
       json_extract(value, '$.type'), json_extract(value, '$.input'), coalesce(json_extract(value, '$.priority'), 5),
       coalesce(json_extract(value, '$.blockers'), 0), json_extract(value, '$.max_attempts'), json_extract(value, '$.at'),
       json_extract(value, '$.key'), json_extract(value, '$.trace'),
       {now}, json_extract(value, '$.version'), json_extract(value, '$.debounced'),
       json_extract(value, '$.context'), json_extract(value, '$.cost')

-- fragment: job_columns
-- A job as people see it, of the view `holdfast_job_state`: the fields of `JobRecord`, in their order.
id, chain_id, chain_index, type, state, priority, input, key, trace, created_at, planned_at, available_at, attempt,
       max_attempts, crashes, fence, locked_by, locked_until, output, error, fingerprint, continued, started_at, finished_at,
       version, expires_at, context

-- name: job_insert
-- Writes jobs. One whose id exists already is left alone and not returned, so that a start repeated after an unknown commit
-- is harmless; `not exists` comes first because the place in the chain, which such a job holds too, must not be complained of.
insert into holdfast_job ({new_job_columns})
select {new_job_values}
  from json_each(:rows) x
 where not exists (select 1 from holdfast_job j where j.id = json_extract(x.value, '$.id'))
on conflict (id) do nothing
returning id, type;

-- name: job_insert_alike
-- The same for first jobs of chains that differ in nothing but their input, which is given by id: every field that is looked
-- for in a row costs half a microsecond.
insert into holdfast_job (id, chain_id, chain_index, type, input, priority, blockers, created_at)
select x.key, x.key, 0, :type, x.value, :priority, 0, {now}
  from json_each(:inputs) x
 where not exists (select 1 from holdfast_job j where j.id = x.key)
on conflict (id) do nothing
returning id, type;

-- name: job_insert_new
-- One job that begins a chain and has no options, under an id just made, so there is nothing to look up. `job_insert_new_queue`
-- follows.
insert into holdfast_job (id, chain_id, chain_index, type, input, priority, blockers, trace, created_at)
values (:id, :id, 0, :type, :input, 5, 0, :trace, {now});

-- name: job_insert_new_queue
insert into holdfast_queue (job_id, type, priority, available_at)
select id, type, priority, created_at from holdfast_job where id = :id;

-- name: job_insert_queue
-- Gives jobs that were just written their live rows.
insert into holdfast_queue (job_id, type, priority, available_at, max_attempts, awaited, version)
select j.id, j.type, j.priority,
       case when j.blockers > 0 then 9223372036854775807 else max(coalesce(j.planned_at, 0), j.created_at) end,
       j.max_attempts, :awaited, j.version
  from json_each(:ids) x cross join holdfast_job j on j.id = x.value;

-- fragment: claimed_columns
-- What every claimed job has: the first fields of `ClaimedJob`.
q.job_id, q.token, q.type, q.priority, q.available_at, q.attempt, q.max_attempts, q.crashes, q.fence, j.chain_id,
       j.chain_index, j.input, j.blockers, j.trace, j.key, j.created_at, :now

-- name: job_claim_queues
-- The priorities at which these types have live jobs, one seek each, so that the other queues need no poll.
with recursive type_queue (type, priority) as (
  select t.value, (select min(q.priority) from holdfast_queue q where q.type = t.value) from json_each(:types) t
  union all
  select l.type, (select min(q.priority) from holdfast_queue q where q.type = l.type and q.priority > l.priority)
    from type_queue l where l.priority is not null)
select type, priority from type_queue where priority is not null;

-- name: job_claim_poll
-- One poll of a claim: what is due and free of one type and priority behind the low-water mark, oldest first; inputs of newer
-- versions than the worker reads are left alone. The rows sort
-- as the claim orders. They come as one text: between any two rows the interpreter would let the handlers' thread run.
select json_group_array(json_array(found.available_at, found.job_id, found.crashes, :token))
  from (
    select q.available_at, q.job_id, q.crashes
      from holdfast_queue q
     where q.type = :type and q.priority = :priority and (q.available_at, q.job_id) > (:after, :after_id)
       and q.available_at <= :now and q.token is null and (q.crashes = 0 or :allow_crashed)
       and (q.version > :reads) is not true
     order by q.available_at, q.job_id
     limit :wanted offset :passed) found;

-- name: job_claim_take
-- Marks jobs as held. The write lock has been held since the poll, so they are still free.
update holdfast_queue
   set attempt = attempt + 1, fence = max(fence + 1, :now / 1000), token = :token
--cost     , spent = null
 where job_id in (select value from json_each(:ids));

-- name: job_claim_lease
insert into holdfast_lease (token, worker, claimed_at, expires_at, lease_ms, max_attempts, backoff_base_ms, backoff_cap_ms, job_ids)
values (:token, :worker, :now, :now + :lease_ms * 1000, :lease_ms, :max_attempts, :backoff_base_ms, :backoff_cap_ms, :ids);

-- name: job_claim_read
-- What was claimed, in the order of the ids given, which a cross join keeps; as one text. What few jobs have is left out where
-- a job has none of it: each value costs time to write and to read.
select json_group_array(
         case when coalesce(j.version, j.debounced, q.failing, q.steps, q.expires_at, j.context) is null
                   and not q.awaited and j.blockers >= 0
              then json_array({claimed_columns})
              else json_array({claimed_columns}, j.version, {is_debounced}, null, q.failing, q.awaited, q.steps, q.expires_at,
                              j.context) end)
  from json_each(:ids) x
 cross join holdfast_queue q on q.job_id = x.value
  left join holdfast_job j on j.id = x.value;

-- name: job_next_due
-- In how many microseconds the next free job of these types becomes due, or became so less than :back_us ago. If the first one is
-- newer than the worker reads, more are looked at, and if those are too, it is worth a look when the last of them is due.
with priority (level) as (values (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)),
clock (now) as (select {now}),
asked (type, reads) as (select value, json_extract(:reads, '$[' || key || ']') from json_each(:types))
select min((
         select case when (q.version > t.reads) is not true then q.available_at else (
                  select coalesce(min(case when (x.version > t.reads) is not true then x.available_at end),
                                  case when count(*) = 50 then max(x.available_at) end)
                    from (
                      select w.version, w.available_at from holdfast_queue w
                       where w.type = t.type and w.priority = p.level and w.token is null and w.available_at >= q.available_at
                         and w.available_at < 9223372036854775807
                       order by w.available_at, w.job_id
                       limit 50) x) end
           from holdfast_queue q
          where q.type = t.type and q.priority = p.level and q.token is null and q.available_at > c.now - :back_us
            and q.available_at < 9223372036854775807
          order by q.available_at, q.job_id
          limit 1)) - c.now
  from clock c cross join asked t cross join priority p;

-- name: job_finish_held
-- Which attempts of a claim may end: each is proven by its id and the claim's token; what is not named was lost. Jobs that
-- other jobs wait for are taken only when :awaited is true, because the fan-in that follows needs the same transaction. As one
-- text; the write lock keeps it true.
select json_group_array(json_array(q.job_id, q.type, q.attempt, q.fence))
  from json_each(:ids) x
 cross join holdfast_queue q on q.job_id = x.value and q.token = :token
 where :awaited or not q.awaited;

-- name: job_finish_end
-- Writes the outcomes of those that `job_finish_held` has named and that ended one way and without an error, of [started_at,
-- output] by id: every value taken out of a row costs as much as finding the job. `queue_drop` follows.
insert into holdfast_outcome (job_id, type, state, continued, output, attempts, crashes, fence, token, worker, started_at, finished_at)
select q.job_id, q.type, :state, :continued, json_extract(x.value, '$[1]'), q.attempt, q.crashes, q.fence, q.token, :worker,
       json_extract(x.value, '$[0]'), :now
  from json_each(:rows) x
 cross join holdfast_queue q on q.job_id = x.key;

-- name: job_finish_error
-- The same of [started_at, output, error, fingerprint] by id.
insert into holdfast_outcome (job_id, type, state, continued, output, error, fingerprint, attempts, crashes, fence, token, worker, started_at, finished_at, gate, gate_at)
select q.job_id, q.type, :state, :continued, json_extract(x.value, '$[1]'), json_extract(x.value, '$[2]'), json_extract(x.value, '$[3]'),
       q.attempt, q.crashes, q.fence, q.token, :worker, json_extract(x.value, '$[0]'), :now,
       case when :state = 'failed' then q.gate end, case when :state = 'failed' and {is_ordered} then q.gate_at end
  from json_each(:rows) x
 cross join holdfast_queue q on q.job_id = x.key;

-- name: job_finish_return
-- Gives attempts back. Each row [id, token, refund, available_at, parks] is proven by its pair; without an instant the job keeps its
-- place. An attempt that came to an end of its own killed nobody; one that parks has not come to its end.
update holdfast_queue
   set token = null, attempt = attempt - x.refund,
       available_at = case when gate is null then coalesce(x.available_at, holdfast_queue.available_at)
                           when x.available_at = 9223372036854775807 and not {is_ordered} then x.available_at end,
       gate_at = case when x.available_at is null or gate is null or {is_ordered} then gate_at
                      when x.available_at < 9223372036854775807 then x.available_at end,
       rests_until = case when x.available_at is null or not {is_ordered} then rests_until else x.available_at end,
       crashes = case when x.available_at is null or x.parks then crashes else 0 end,
       woken = case when x.parks and x.available_at > :now then 0 end
  from (select json_extract(value, '$[0]') as id, json_extract(value, '$[1]') as token, json_extract(value, '$[2]') as refund,
               json_extract(value, '$[3]') as available_at, json_extract(value, '$[4]') as parks
          from json_each(:rows)) x
 where holdfast_queue.job_id = x.id and holdfast_queue.token = x.token and (:awaited or not holdfast_queue.awaited)
returning job_id, type, attempt, fence, awaited, gate;

-- name: job_continue
-- Writes successors; a second one for the same place in a chain is refused by the unique index. `job_insert_queue` follows.
insert into holdfast_job ({new_job_columns})
select {new_job_values}
  from json_each(:rows);

-- name: queue_awaited
-- Which of these live jobs other jobs wait for.
select q.job_id from json_each(:ids) x cross join holdfast_queue q on q.job_id = x.value where q.awaited;

-- name: queue_drop
delete from holdfast_queue where job_id in (select value from json_each(:ids));

-- name: attempt_add
-- Remembers attempts that did not complete their job; rows are [job, fence, attempt, kind, worker, started_at, error].
insert into holdfast_attempt (job_id, fence, attempt, kind, worker, started_at, ended_at, error)
select json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'), json_extract(value, '$[3]'),
       json_extract(value, '$[4]'), json_extract(value, '$[5]'), :now, json_extract(value, '$[6]')
  from json_each(:rows)
 where true
on conflict do nothing;

-- name: job_lease_status
-- What became of (job, token) pairs that a finish or a heartbeat did not find.
select x.id, x.token,
       case when q.token = x.token then 'held' when o.token = x.token then 'done'
            when o.job_id is not null then 'ended' when q.token is not null then 'taken'
            when q.job_id is not null then 'free' else 'gone' end,
       o.state
  from (select json_extract(value, '$.id') as id, json_extract(value, '$.token') as token from json_each(:rows)) x
  left join holdfast_queue q on q.job_id = x.id
  left join holdfast_outcome o on o.job_id = x.id;

-- name: job_lock
-- Says which jobs are live. Written as an update that changes nothing because that takes the file's write lock, also on a
-- connection whose transaction has only read so far. Cancel, complete from outside and delete begin here.
update holdfast_queue set awaited = awaited
 where job_id in (select value from json_each(:ids))
returning job_id;

-- name: job_set_expiry
-- When jobs that this transaction has just started are given up: at a time, or so long from now.
update holdfast_queue
   set expires_at = coalesce(json_extract(x.value, '$.at'), {now} + json_extract(x.value, '$.after_ms') * 1000)
  from json_each(:rows) x
 where job_id = json_extract(x.value, '$.job_id');

-- name: job_expired
-- Jobs whose time is over before they began, in a queue or blocked; the end that follows takes the file's write lock.
select job_id from holdfast_queue
 where expires_at <= {now} and token is null and failing is null and steps is null
 order by expires_at
 limit :limit;

-- name: job_unhandled
-- Jobs of one type that have been due for so long, in a queue or not; the end that follows takes the file's write lock.
select job_id from holdfast_queue
 where type = :type and token is null
   and case when gate_at is null then available_at else max(gate_at, coalesce(rests_until, 0)) end <= {now} - :after_ms * 1000
 order by job_id
 limit :limit;

-- name: job_end_read
-- The live jobs among those to be ended from outside, with the state they are in.
select q.job_id, j.chain_id, q.type,
       case when q.token is not null then 'running' when q.available_at = 9223372036854775807 then 'blocked' else 'pending' end,
       l.worker, q.awaited
  from json_each(:ids) x
 cross join holdfast_queue q on q.job_id = x.value
 cross join holdfast_job j on j.id = x.value
  left join holdfast_lease l on l.token = q.token;

-- name: job_end
-- Writes the outcomes of live jobs ended from outside, regardless of their holder. `queue_drop` follows, and the token is void.
insert into holdfast_outcome (job_id, type, state, continued, output, error, fingerprint, attempts, crashes, fence, worker, started_at, finished_at, gate, gate_at, fanned_out)
select q.job_id, q.type, json_extract(x.value, '$.state'), json_type(x.value, '$.next') is not null, json_extract(x.value, '$.output'),
       json_extract(x.value, '$.error'), json_extract(x.value, '$.fingerprint'), q.attempt, q.crashes, q.fence, l.worker, l.claimed_at, :now,
       case when json_extract(x.value, '$.state') = 'failed' then q.gate end,
       case when json_extract(x.value, '$.state') = 'failed' and {is_ordered} then q.gate_at end, json_extract(x.value, '$.fanned_out')
  from json_each(:rows) x
 cross join holdfast_queue q on q.job_id = json_extract(x.value, '$.id')
  left join holdfast_lease l on l.token = q.token;

-- name: job_trigger
-- Makes pending jobs due now.
update holdfast_queue
   set available_at = case when gate is null then {now} end,
       gate_at = case when {is_ordered} then min(gate_at, {now}) when gate is not null then {now} end,
       rests_until = case when {is_ordered} then {now} end
 where job_id in (select value from json_each(:ids)) and token is null
   and (gate_at is not null or available_at < 9223372036854775807)
returning job_id, type, gate;

-- name: job_redrive
-- Takes failed jobs out of the outcomes. `job_redrive_queue` follows.
delete from holdfast_outcome
 where job_id in (select value from json_each(:ids)) and state = 'failed'
returning job_id, type, fence, gate, gate_at, 0, null;

-- name: on_failed_forget
delete from holdfast_failing where job_id in (select value from json_each(:ids));

-- name: on_failed_list
select type from holdfast_on_failed;

-- name: on_failed_declare
insert into holdfast_on_failed (type) select value from json_each(:types) where true on conflict do nothing;

-- name: on_failed_mark
-- Marks jobs that have just failed, if their type has `on_failed`: a worker calls it in the transaction that fails them again. Not if
-- it was tried so often already, or if no worker took the job since the last time.
insert into holdfast_failing (job_id, attempt, error, fingerprint)
select o.job_id, o.attempts, o.error, o.fingerprint
  from json_each(:ids) x
 cross join holdfast_outcome o on o.job_id = x.value
 cross join holdfast_on_failed t on t.type = o.type
  left join holdfast_failing f on f.job_id = o.job_id
 where o.state = 'failed' and (f.job_id is null or (o.attempts > f.attempt and o.attempts < f.attempt + :tries))
on conflict (job_id) do update set attempt = attempt
returning job_id;

-- name: on_failed_unremember
-- The call was no attempt of the job.
delete from holdfast_attempt
 where kind = 'fail' and (job_id, fence, attempt) in (
   select a.job_id, a.fence, a.attempt
     from json_each(:ids) x
    cross join holdfast_failing f on f.job_id = x.value
    cross join holdfast_outcome o on o.job_id = x.value
    cross join holdfast_attempt a on a.job_id = x.value and a.fence = o.fence and a.attempt > f.attempt);

-- name: on_failed_settle
-- The others have failed, after as many attempts as they had of their own.
update holdfast_outcome
   set attempts = f.attempt
  from json_each(:ids) x cross join holdfast_failing f on f.job_id = x.value
 where holdfast_outcome.job_id = x.value and holdfast_outcome.state = 'failed';

-- name: on_failed_defer
-- Takes them out of the outcomes. `job_redrive_queue` follows.
delete from holdfast_outcome
 where job_id in (select value from json_each(:ids))
returning job_id, type, fence, gate, gate_at, attempts, 1;

-- name: on_failed_of
select attempt, error, fingerprint from holdfast_failing where job_id = :id;

-- name: job_redrive_queue
-- Takes failed jobs back into the queue, rows [id, fence, gate, place, attempts, failing] spread in order: the fence only grows, the history
-- stays. One that failed with a chain may wait for others: it is blocked again.
insert into holdfast_queue (job_id, type, priority, available_at, max_attempts, fence, awaited, gate, gate_at, ordered,
                            rests_until, attempt, failing, steps, version)
select j.id, j.type, case when json_extract(x.value, '$[3]') is null then j.priority else 5 end,
       case when x.is_blocked then 9223372036854775807 when json_extract(x.value, '$[2]') is null then {now} + x.key * :spacing_us end, j.max_attempts,
       json_extract(x.value, '$[1]'),
       exists (select 1 from holdfast_blocker b where b.chain_id = j.chain_id and b.open = 1),
       json_extract(x.value, '$[2]'),
       case when json_extract(x.value, '$[2]') is not null and not x.is_blocked
            then coalesce(json_extract(x.value, '$[3]'), {now} + x.key * :spacing_us) end,
       json_extract(x.value, '$[3]') is not null, case when json_extract(x.value, '$[3]') is not null then {now} + x.key * :spacing_us end,
       json_extract(x.value, '$[4]'), json_extract(x.value, '$[5]'),
       case when exists (select 1 from holdfast_step s where s.job_id = j.id) then 1 end, j.version
  from (
    select r.key, r.value, json_extract(r.value, '$[5]') is null and exists (
             select 1 from holdfast_blocker b where b.job_id = json_extract(r.value, '$[0]') and b.open = 1 and b.step is null) as is_blocked
      from json_each(:rows) r) x
 cross join holdfast_job j on j.id = json_extract(x.value, '$[0]');

-- name: job_get
select {job_columns}
  from holdfast_job_state
 where id in (select value from json_each(:ids))
 order by id;

-- name: job_walk
-- The newest jobs before an id. A list looks at so many at once and keeps what fits, so no question reads the whole table.
-- 'g' follows every id.
select id from holdfast_job where id < coalesce(:before, 'g') order by id desc limit :limit;

-- name: job_walk_live
-- The same of what has not ended.
select job_id from holdfast_queue where job_id < coalesce(:before, 'g') order by job_id desc limit :limit;

-- name: job_walk_running
-- The same of what leases name; some of it may have ended.
select distinct j.value
  from holdfast_lease l cross join json_each(l.job_ids) j
 where j.value < coalesce(:before, 'g')
 order by j.value desc
 limit :limit;

-- name: job_walk_blocked
-- The same of what is blocked, queue by queue along the claim's index, so that what is due is not read.
with recursive kind (type) as (
  select min(type) from holdfast_queue
  union all
  select (select min(q.type) from holdfast_queue q where q.type > k.type) from kind k where k.type is not null),
priority (level) as (values (0), (1), (2), (3), (4), (5), (6), (7), (8), (9))
select q.job_id
  from kind k
 cross join priority p
 cross join holdfast_queue q
    on q.job_id in (
      select w.job_id from holdfast_queue w
       where w.type = k.type and w.priority = p.level and w.available_at = 9223372036854775807 and w.job_id < coalesce(:before, 'g')
       order by w.job_id desc
       limit :limit)
 order by q.job_id desc
 limit :limit;

-- name: job_walk_not_completed
-- The same of what failed or was cancelled. By itself SQLite would take the index that begins with the state, and sort.
select job_id
  from holdfast_outcome indexed by holdfast_outcome_not_completed_id
 where state in ('failed', 'cancelled') and job_id < coalesce(:before, 'g')
 order by job_id desc
 limit :limit;

-- name: job_walk_chain
-- The same of one chain.
select id from holdfast_job where chain_id = :chain and id < coalesce(:before, 'g') order by id desc limit :limit;

-- name: job_walk_blocker
-- The same of what waits, or waited, for one chain.
select distinct job_id
  from holdfast_blocker
 where chain_id = :blocker and job_id < coalesce(:before, 'g')
 order by job_id desc
 limit :limit;

-- name: job_walk_key
-- The same of what was started under one key.
select id from holdfast_job where key = :key and id < coalesce(:before, 'g') order by id desc limit :limit;

-- name: job_ids_like
-- Ids that begin with these digits, or that end with them among the newest: no index leads to an end.
select id
  from (
    select * from (
      select id from holdfast_job where id between :first and :last and (id = chain_id or not :chains)
       order by id desc limit :limit)
    union
    select * from (
      select id from (select id, chain_id from holdfast_job order by id desc limit :newest)
       where substr(replace(id, '-', ''), -length(:digits)) = :digits and (id = chain_id or not :chains) limit :limit))
 order by id desc
 limit :limit;

-- name: job_made
-- When a job was made.
select created_at from holdfast_job where id = :id;

-- name: job_type_known
-- Whether any job of such a type was ever started: where none was, there is nothing to look for. Upper and
-- lower case are one to LIKE, so this says yes a little too often.
select 1
  from holdfast_tally
 where (:types is null or type in (select value from json_each(:types)))
   and (:type_like is null or type like :type_like escape '\')
 limit 1;

-- name: job_walk_context
-- The same of what was started in a context with this value.
select job_id
  from holdfast_job_context
 where name = :context_name and value = :context_value and job_id < coalesce(:before, 'g')
 order by job_id desc
 limit :limit;

-- name: job_context_names
-- The names that contexts have, by one seek each.
with recursive known (name) as (
  select min(name) from holdfast_job_context
  union all
  select (select min(c.name) from holdfast_job_context c where c.name > k.name) from known k where k.name is not null)
select name from known where name is not null limit 100;

-- fragment: job_conditions
-- Every filter is optional. Types are matched by a glob because LIKE does not tell upper from lower case here. A word may be
-- anywhere in what people know a job by.
id in (select value from json_each(:ids))
   and (:states is null or state in (select value from json_each(:states)))
   and (:types is null or type in (select value from json_each(:types)))
   and (:type_glob is null or type glob :type_glob)
   and (:chain is null or chain_id = :chain)
   and (:blocker is null or id in (select b.job_id from holdfast_blocker b where b.chain_id = :blocker))
   and (:key is null or key = :key)
   and (:key_glob is null or key glob :key_glob)
   and (:error_like is null or error like :error_like escape '\')
   and (:fingerprint is null or fingerprint = :fingerprint)
   and (:worker is null or locked_by = :worker)
   and (:step is null or exists (select 1 from holdfast_step s where s.job_id = holdfast_job_state.id and s.name = :step))
   and (:context is null or not exists (
         select 1 from json_each(:context) e
          where not exists (
            select 1 from holdfast_job_context c
             where c.name = e.key and c.value = e.value and c.job_id = holdfast_job_state.id)))
   and (:waiting is null or exists (
         select 1 from holdfast_step s cross join holdfast_queue w on w.job_id = s.job_id
          where s.job_id = holdfast_job_state.id and s.state = 'open' and s.kind = 'wait' and s.signal = :waiting))
   and (:attempt_min is null or attempt >= :attempt_min)
   and (:attempt_max is null or attempt <= :attempt_max)
   and (:age_min_ms is null or created_at <= {now} - :age_min_ms * 1000)
   and (:age_max_ms is null or created_at >= {now} - :age_max_ms * 1000)
   and (:words is null or not exists (
         select 1 from (select value as word from json_each(:words))
          where type || char(10) || coalesce(key, '') || char(10) || coalesce(error, '') || char(10) || id
                not like word escape '\'))

-- name: job_list
-- Those of these jobs that fit, the newest first.
select {job_columns}
  from holdfast_job_state
 where {job_conditions}
 order by id desc
 limit :limit;

-- name: job_matching
-- The same without what is large.
select id, type
  from holdfast_job_state
 where {job_conditions}
 order by id desc
 limit :limit;

-- name: job_crashed_before
-- How many jobs whose worker died are before this one in its queue: a worker takes one such job at a time. Those of one crash
-- become due together, so the nearest are enough.
select coalesce(sum(near.crashes > 0), 0)
  from (
    select * from (
      select w.crashes from holdfast_queue q cross join holdfast_queue w
       where q.job_id = :id and w.type = q.type and w.priority = q.priority
         and (w.available_at, w.job_id) < (q.available_at, q.job_id)
       order by w.available_at desc, w.job_id desc
       limit 1000)
    union all
    select * from (
      select w.crashes from holdfast_queue q cross join holdfast_queue w
       where q.job_id = :id and w.type = q.type and w.gate = q.gate and w.priority = q.priority
         and (w.gate_at, w.job_id) < (q.gate_at, q.job_id)
       order by w.gate_at desc, w.job_id desc
       limit 1000)) near;

-- name: job_last_errors
-- How the last attempts of jobs ended that are to be tried again.
select wanted.value, (select error from holdfast_attempt where job_id = wanted.value order by fence desc, attempt desc limit 1)
  from json_each(:ids) wanted;

-- name: job_attempts
select job_id, attempt, fence, kind, worker, started_at, ended_at, error
  from holdfast_attempt
 where job_id = :id
 order by fence, attempt;
