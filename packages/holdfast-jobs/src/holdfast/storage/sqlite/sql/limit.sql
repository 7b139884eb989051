-- name: limit_insert_queue
-- Gives jobs that were just written their live rows, some of them in partitions; rows are [id, gate, ordered].
insert into holdfast_queue (job_id, type, priority, available_at, max_attempts, awaited, gate, gate_at, ordered, rests_until, version)
select j.id, j.type, case when x.ordered then 5 else j.priority end,
       case when j.blockers > 0 then 9223372036854775807 when x.gate is null then max(coalesce(j.planned_at, 0), j.created_at) end,
       j.max_attempts, :awaited, x.gate,
       case when x.gate is not null and j.blockers <= 0 then max(coalesce(j.planned_at, 0), j.created_at) end,
       x.ordered, case when x.ordered then j.created_at end, j.version
  from (select json_extract(value, '$[0]') as id, json_extract(value, '$[1]') as gate, json_extract(value, '$[2]') as ordered
          from json_each(:rows)) x
 cross join holdfast_job j on j.id = x.id;

-- name: limit_signal_leaving
-- Signals for the partitions that these jobs are about to leave.
insert into holdfast_wakeup (type, priority, at, gate)
select q.type, q.priority, :now, q.gate
  from json_each(:ids) x cross join holdfast_queue q on q.job_id = x.value
 where q.gate is not null and q.gate <> q.type || '#'
 group by q.type, q.priority, q.gate;

-- name: limit_signal_placed
-- Signals for the partitions in whose queues these jobs have a place: now if they were freed, otherwise once they are due.
insert into holdfast_wakeup (type, priority, at, gate, since, version)
select q.type, q.priority, case when :freed then :now else min(q.gate_at) end, q.gate, min(q.gate_at),
       case when not :freed then q.version end as for_version
  from json_each(:ids) x cross join holdfast_queue q on q.job_id = x.value
 where q.gate_at is not null
 group by q.type, q.priority, q.gate, for_version;

-- name: limit_signal
-- Rows are [type, priority, at, gate, version].
insert into holdfast_wakeup (type, priority, at, gate, version)
select json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'), json_extract(value, '$[3]'),
       json_extract(value, '$[4]')
  from json_each(:rows);

-- name: limit_pause_partitions
-- Handlers said that nothing else should come through these partitions; rows are [gate, until, reason].
insert into holdfast_limit_setting (id, rests_until, reason, changed_at)
select json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'), :now from json_each(:rows) where true
on conflict (id) do update
   set rests_until = max(coalesce(rests_until, 0), excluded.rests_until), reason = excluded.reason, changed_by = null,
       changed_at = excluded.changed_at;

-- name: limit_signals
-- The due signals of a type at one priority, but for those of jobs that are newer than the worker reads.
select n, priority, at, gate, since from holdfast_wakeup
 where type = :type and priority = :priority and at <= :now and (version > :reads) is not true
 order by at, n
 limit :window;

-- name: limit_signals_of
-- All such signals of these partitions.
select w.n, w.priority, w.gate, w.since
  from json_each(:ids) x cross join holdfast_wakeup w on w.gate = x.value and w.at <= :now and (w.version > :reads) is not true;

-- name: limit_partitions
select g.id, g.mask, g.holders, g.spent, g.front_at, g.front_id
  from json_each(:ids) x cross join holdfast_gate g on g.id = x.value;

-- name: limit_settings_of
select s.id, s.allowed, s.rate, s.period_ms, s.rests_until
  from json_each(:ids) x cross join holdfast_limit_setting s on s.id = x.value;

-- name: limit_bearing
-- Which of these jobs bear a token and, where a failed job holds its queue, which of them failed.
select q.job_id from json_each(:ids) x cross join holdfast_queue q on q.job_id = x.value where q.token is not null
union all
select o.job_id from json_each(:ids) x cross join holdfast_outcome o on o.job_id = x.value where :holds and o.state = 'failed';

-- name: limit_poll
-- The first free jobs of a queue at one priority behind its front; of an ordered queue whether due or not, readable or not.
select q.job_id, q.priority, q.gate_at, q.crashes, max(q.gate_at, coalesce(q.rests_until, 0)), (q.version > :reads) is true
  from holdfast_queue q
 where q.type = :type and q.gate = :gate and q.priority = :priority and (q.gate_at, q.job_id) > (:front_at, :front_id)
   and (q.gate_at <= :now or :ordered) and q.token is null and (q.crashes = 0 or :allow_crashed or :ordered)
   and ((q.version > :reads) is not true or :ordered)
 order by q.gate_at, q.job_id
 limit :wanted;

-- name: limit_crashed_in_queue
-- Whether a queue has due jobs that only a worker without other crashed jobs may take.
select exists (
         select 1 from holdfast_queue q
          where q.type = :type and q.gate = :gate and q.gate_at <= :now and q.token is null and q.crashes > 0);

-- name: limit_next_in_queue
-- When the next job of a queue becomes due; mask says at which priorities it has any.
select min((
         select q.gate_at from holdfast_queue q
          where q.type = :type and q.gate = :gate and q.priority = p.value and q.token is null and q.gate_at > :now
            and (q.version > :reads) is not true
          order by q.gate_at, q.job_id limit 1))
  from json_each('[0,1,2,3,4,5,6,7,8,9]') p where :mask & (1 << p.value) <> 0;

-- name: limit_next_signal
select min((
         select w.at from holdfast_wakeup w
          where w.type = :type and w.priority = p.value and w.at > :now and (w.version > :reads) is not true
          order by w.at, w.n limit 1))
  from json_each('[0,1,2,3,4,5,6,7,8,9]') p;

-- name: limit_newer
-- The first version of a type that is newer than a worker reads.
select min(version) from holdfast_queue where type = :type and version > :reads;

-- name: limit_signal_newer
-- Signals for the jobs of partitions that are newer than a worker reads, to those that read them, unless there is one. Where a queue
-- has more that are readable, another poll follows.
insert into holdfast_wakeup (type, priority, at, gate, version)
select q.type, q.priority, max(q.gate_at, :now), q.gate, :version
  from json_each(:ids) x
 cross join holdfast_queue q on q.job_id = (
   select w.job_id from (
     select i.job_id, i.gate_at, i.version from holdfast_queue i
      where i.type = :type and i.gate = x.value and i.gate_at is not null and i.token is null
      order by i.priority, i.gate_at, i.job_id limit 1000) w
    where w.version > :reads order by w.gate_at limit 1)
 where not exists (
   select 1 from holdfast_wakeup k where k.gate = x.value and k.version > :reads and k.at <= max(q.gate_at, :now));

-- name: limit_claim_read
-- What was claimed through partitions, in the order of the ids given, which a cross join keeps; as one text.
select json_group_array(json_array(
         q.job_id, q.token, q.type, q.priority, q.gate_at, q.attempt, q.max_attempts, q.crashes, q.fence,
         j.chain_id, j.chain_index, j.input, j.blockers, j.trace, j.key, j.created_at, :now,
         j.version, {is_debounced}, q.gate, q.failing, q.awaited, q.steps, q.expires_at, j.context))
  from json_each(:ids) x
 cross join holdfast_queue q on q.job_id = x.value
  left join holdfast_job j on j.id = x.value;

-- name: limit_partitions_put
-- Rows are [id, mask, holders, spent, front_at, front_id, keep_until].
insert or replace into holdfast_gate (id, mask, holders, spent, front_at, front_id, keep_until)
select json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'), json_extract(value, '$[3]'),
       json_extract(value, '$[4]'), json_extract(value, '$[5]'), json_extract(value, '$[6]')
  from json_each(:rows);

-- name: limit_cost_room
-- How many of the first of these jobs a partition lets in by what they cost, and when it lets the next in, if that is a matter of time.
-- Of those that only a worker without other crashed jobs may take, one may fit sooner, and so may a more urgent one that is due later.
with steps (at, freed) as materialized (
  select at, sum(cost) over (order by at, step) from holdfast_charge
   where gate = :id and at > :now - :cost_period_ms * 1000 and at <= :now + 60000000),
used (charged, busy) as materialized (
  select coalesce((select max(freed) from steps), 0),
         (select coalesce(sum(coalesce(j.cost, 1)), 0) from json_each(:holders) h cross join holdfast_job j on j.id = h.value)),
job (cost_to, id) as materialized (
  select sum(min(coalesce(j.cost, 1), :max_cost)) over (order by x.key), j.id
    from json_each(:ids) x cross join holdfast_job j on j.id = x.value),
free (cost) as (
  select max(0, min(coalesce(:cost_allowed - u.busy, 9223372036854775807), coalesce(:cost_rate - u.charged, 9223372036854775807)))
    from used u),
first (cost_to, id) as (select min(cost_to), id from job where cost_to > (select cost from free)),
urgent (at) as (
  select min((
           select w.gate_at from holdfast_queue w
            where w.type = q.type and w.gate = :id and w.priority = p.value and w.token is null and w.gate_at > :now
            order by w.gate_at, w.job_id limit 1))
    from first f cross join holdfast_queue q on q.job_id = f.id cross join json_each('[0,1,2,3,4,5,6,7,8,9]') p
   where p.value < q.priority)
select (select count(*) from job where cost_to <= (select cost from free)),
       nullif(min(coalesce((select at from urgent), 9223372036854775807), coalesce(
         case when u.charged + f.cost_to > :cost_rate
              then coalesce(
                (select min(s.at) from steps s where u.charged + f.cost_to - s.freed <= :cost_rate), :now) + :cost_period_ms * 1000
              when not :allow_crashed then :now + 250000 end, 9223372036854775807)), 9223372036854775807)
  from used u cross join first f;

-- name: limit_charge
-- Adds what jobs cost that were let in, and drops what no longer counts. Costs of one step are one row, dated by its last.
insert into holdfast_charge (gate, step, at, cost)
select :id, :now / :step, :now, sum(min(coalesce(j.cost, 1), :max_cost))
  from json_each(:ids) x cross join holdfast_job j on j.id = x.value
having sum(coalesce(j.cost, 1)) > 0
on conflict (gate, step) do update set at = max(at, excluded.at), cost = cost + excluded.cost;

-- name: limit_charge_past
delete from holdfast_charge where gate = :id and at <= :now - :cost_period_ms * 1000;

-- name: limit_put_costs
update holdfast_job set cost = x.cost
  from (select json_extract(value, '$.id') as id, json_extract(value, '$.cost') as cost from json_each(:rows)) x
 where holdfast_job.id = x.id;

-- name: limit_answer
delete from holdfast_wakeup where n in (select value from json_each(:ns));

-- name: limit_unqueued
-- Jobs of a limited type that wait in no partition: started by code that does not know of the limit, or by SQL.
select q.job_id, j.input, q.available_at
  from json_each('[0,1,2,3,4,5,6,7,8,9]') p
 cross join holdfast_queue q on q.type = :type and q.priority = p.value and q.available_at < 9223372036854775807 and q.gate_at is null and q.token is null
   and (q.version > :reads) is not true
 cross join holdfast_job j on j.id = q.job_id
 limit :limit;

-- name: limit_enqueue
-- Gives such jobs their places, unless they were claimed or moved since; an ordered queue has one priority.
update holdfast_queue
   set gate = x.gate, gate_at = holdfast_queue.available_at, available_at = null,
       ordered = :ordered, rests_until = case when :ordered then holdfast_queue.available_at end, priority = case when :ordered then 5 else priority end
  from (select json_extract(value, '$.id') as id, json_extract(value, '$.gate') as gate,
               json_extract(value, '$.available_at') as available_at
          from json_each(:rows)) x
 where holdfast_queue.job_id = x.id and holdfast_queue.token is null and holdfast_queue.available_at = x.available_at
returning job_id;

-- name: limit_queued_types
-- Of these types, those with jobs in partitions that no live worker limits: as long as one does, the queues are its own.
select t.value from json_each(:types) t
 where exists (select 1 from holdfast_queue q where q.type = t.value and q.gate is not null)
   and not exists (
     select 1 from holdfast_worker k cross join json_each(k.limits) declared
      where k.stopped_at is null and not k.draining and k.seen_at > {now} - k.live_ms * 1000 and declared.key = t.value);

-- name: limit_settings
select id, allowed, rate, period_ms, rests_until, reason, changed_by, changed_at
  from holdfast_limit_setting
 where :type is null or id in (:type, '*' || :type) or (id >= :type || '#' and id < :type || '$')
 order by id
 limit :limit;

-- name: limit_paused
select id, allowed, rate, period_ms, rests_until, reason, changed_by, changed_at
  from holdfast_limit_setting
 where rests_until > {now}
 order by rests_until desc, id
 limit :limit;

-- name: limit_set
-- What was set wins over the code. `limit_signal_set` follows.
insert into holdfast_limit_setting (id, allowed, rate, period_ms, changed_by, changed_at)
values (:id, :allowed, :rate, :period_ms, :by, {now})
on conflict (id) do update
   set allowed = excluded.allowed, rate = excluded.rate, period_ms = excluded.period_ms,
       changed_by = excluded.changed_by, changed_at = excluded.changed_at;

-- name: limit_signal_set
-- Signals for the queues that a setting concerns: some may have room now.
insert into holdfast_wakeup (type, priority, at, gate)
select substr(g.id, 1, instr(g.id, '#') - 1), p.value, {now}, g.id
  from holdfast_gate g cross join json_each('[0,1,2,3,4,5,6,7,8,9]') p
 where (g.id = :id or (:id like '*%' and g.id >= substr(:id, 2) || '#' and g.id < substr(:id, 2) || '$'))
   and g.id like '%#%' and g.mask & (1 << p.value) <> 0;

-- name: limit_clear
delete from holdfast_limit_setting where id = :id returning id;

-- name: limit_rest
insert into holdfast_limit_setting (id, rests_until, reason, changed_by, changed_at)
values (:id, {now} + :ms * 1000, :reason, :by, {now})
on conflict (id) do update
   set rests_until = excluded.rests_until, reason = excluded.reason, changed_by = excluded.changed_by, changed_at = excluded.changed_at;

-- name: limit_page
-- The queues of a type by key, each with what it lets in and what waits; counts stop at :max_count.
with recursive clock (now) as (select {now}),
key_queue (gate) as (
  select min(q.gate) from holdfast_queue q where q.type = :type and q.gate > coalesce(:after, '')
  union all
  select (select min(q.gate) from holdfast_queue q where q.type = :type and q.gate > l.gate) from key_queue l where l.gate is not null),
page as materialized (select gate from key_queue where gate is not null limit :limit)
select p.gate,
       (select count(*) from (
          select q.token from holdfast_queue q where q.type = :type and q.gate = p.gate order by q.priority, q.gate_at, q.job_id limit :max_count)
         where token is not null),
       coalesce((select sum(json_extract(s.value, '$[1]')) from holdfast_gate g cross join json_each(g.spent) s
                  where g.id = p.gate and json_extract(s.value, '$[0]') > c.now - :period_ms * 1000), 0),
       (select count(*) from (
          select q.token, q.gate_at from holdfast_queue q
           where q.type = :type and q.gate = p.gate order by q.priority, q.gate_at, q.job_id limit :max_count)
         where token is null and gate_at <= c.now),
       (select min(gate_at) from (
          select q.token, q.gate_at from holdfast_queue q
           where q.type = :type and q.gate = p.gate order by q.priority, q.gate_at, q.job_id limit :max_count)
         where token is null),
       t.rests_until, t.reason, t.allowed, t.rate, t.period_ms
  from clock c cross join page p left join holdfast_limit_setting t on t.id = p.gate
 order by p.gate;

-- name: limit_shared
-- The partitions of whole types and shared names: how many run there, and how many started in the last period.
select g.id,
       (select count(*) from json_each(g.holders) h cross join holdfast_queue q on q.job_id = h.value where q.token is not null),
       coalesce((select sum(json_extract(s.value, '$[1]')) from json_each(g.spent) s
                  where json_extract(s.value, '$[0]') > {now} - :period_ms * 1000), 0),
       0, null, t.rests_until, t.reason, t.allowed, t.rate, t.period_ms
  from json_each(:ids) x cross join holdfast_gate g on g.id = x.value
  left join holdfast_limit_setting t on t.id = g.id
 order by g.id;

-- name: limit_place
-- Where jobs wait: how many are before each, the next signal, and the failed job that holds its queue.
select q.job_id, q.gate, q.gate_at,
       (select count(*) from (
          select 1 from holdfast_queue w
           where w.type = q.type and w.gate = q.gate and w.token is null
             and (w.priority, w.gate_at, w.job_id) < (q.priority, q.gate_at, q.job_id) limit :max_count)),
       (select min(at) from (
          select w.at, w.gate from holdfast_wakeup w where w.type = q.type and w.priority = q.priority order by w.at, w.n limit :max_count)
         where gate = q.gate),
       (select o.job_id from json_each(g.holders) h cross join holdfast_outcome o on o.job_id = h.value
         where o.state = 'failed' limit 1)
  from json_each(:ids) x
 cross join holdfast_queue q on q.job_id = x.value
  left join holdfast_gate g on g.id = q.gate
 where q.gate is not null;

-- name: limit_states
-- Partitions, used or not: how many run there and the first few of them, the starts that a rate counts, and whether it is paused.
select x.value,
       (select count(*) from json_each(g.holders) h cross join holdfast_queue q on q.job_id = h.value where q.token is not null),
       (select json_group_array(job_id) from (
          select q.job_id from json_each(g.holders) h cross join holdfast_queue q on q.job_id = h.value
           where q.token is not null order by q.job_id limit :few)),
       coalesce(g.spent, '[]'), t.rests_until, t.reason
  from json_each(:ids) x
  left join holdfast_gate g on g.id = x.value
  left join holdfast_limit_setting t on t.id = x.value;

-- name: limit_held
-- Queues of ordered types that wait for a job that failed. The condition of the index of failures is said in its own words.
select f.gate, f.job_id, f.finished_at
  from (
    select o.job_id, o.type, o.gate, o.finished_at from holdfast_outcome o
     where o.state in ('failed', 'cancelled') and o.state = 'failed'
     order by o.finished_at desc
     limit :limit) f
 where f.gate is not null and f.type in (select value from json_each(:types))
   and exists (select 1 from holdfast_queue w where w.type = f.type and w.gate = f.gate)
 order by f.finished_at, f.job_id;

-- name: limit_sweep_page
select id from holdfast_gate where id > :after order by id limit 1000;

-- name: limit_sweep_pauses
-- Pauses that are over, and with them the settings of keys of which nothing else was set.
delete from holdfast_limit_setting where allowed is null and rate is null and rests_until < {now};

-- name: limit_sweep_charges
delete from holdfast_charge where at < {now} - 2678400000000;

-- name: limit_sweep
-- Removes those of these partitions with nobody waiting, nobody let in and no start that still counts.
delete from holdfast_gate
 where id in (select value from json_each(:ids)) and keep_until < {now}
   and not exists (
     select 1 from holdfast_queue q
      where q.type = substr(holdfast_gate.id, 1, instr(holdfast_gate.id || '#', '#') - 1) and q.gate = holdfast_gate.id)
   and not exists (
     select 1 from json_each(holdfast_gate.holders) h cross join holdfast_queue q on q.job_id = h.value where q.token is not null)
   and not exists (
     select 1 from json_each(holdfast_gate.holders) h cross join holdfast_outcome o on o.job_id = h.value where o.state = 'failed')
returning id;
