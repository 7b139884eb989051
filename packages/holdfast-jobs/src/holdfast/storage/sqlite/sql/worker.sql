-- name: type_setting_list
select type, paused, paused_by, paused_at, lease_ms, timeout_ms, concurrency, max_attempts from holdfast_type_setting order by type;

-- name: type_setting_put
-- Null leaves a value as it is, -1 takes it back to the code's own.
insert into holdfast_type_setting as t (type, paused, paused_by, paused_at, lease_ms, timeout_ms, concurrency, max_attempts, changed_at)
values (:type, coalesce(:paused, 0), case when :paused then :by end, case when :paused then {now} end,
        nullif(:lease_ms, -1), nullif(:timeout_ms, -1), nullif(:concurrency, -1), nullif(:max_attempts, -1),
        {now})
on conflict (type) do update
   set paused = coalesce(:paused, t.paused),
       paused_by = case when :paused is null then t.paused_by else excluded.paused_by end,
       paused_at = case when :paused is null then t.paused_at else excluded.paused_at end,
       lease_ms = nullif(coalesce(:lease_ms, t.lease_ms), -1),
       timeout_ms = nullif(coalesce(:timeout_ms, t.timeout_ms), -1),
       concurrency = nullif(coalesce(:concurrency, t.concurrency), -1),
       max_attempts = nullif(coalesce(:max_attempts, t.max_attempts), -1),
       changed_at = excluded.changed_at;

-- name: worker_put
-- Presence and counters; the first write of a worker registers it. A sign that comes after the last one had lapsed is a return.
-- It answers whether jobs may wait in partitions, and whether a redrive is under way; signals are routed when they are sent.
insert into holdfast_worker as w
  (id, name, host, pid, version, slots, types, started_at, seen_at, counters, last_error, live_ms, timings, leases, limits, reads)
values (:id, :name, :host, :pid, :version, :slots, :types, {now},
        {now}, :counters, :last_error, :live_ms, :timings, :leases, :limits, :reads)
on conflict (id) do update
   set seen_at = excluded.seen_at, slots = excluded.slots, types = excluded.types, counters = excluded.counters,
       last_error = excluded.last_error, stopped_at = null, live_ms = excluded.live_ms, timings = excluded.timings, leases = excluded.leases,
       limits = excluded.limits, reads = excluded.reads,
       back_at = case when excluded.seen_at >= w.seen_at + w.live_ms * 1000 then excluded.seen_at else w.back_at end
returning draining,
          exists (select 1 from holdfast_gate where id > '') or exists (select 1 from holdfast_wakeup where type > ''),
          exists (select 1 from holdfast_redrive), 0;

-- name: worker_stop
update holdfast_worker
   set stopped_at = {now}, seen_at = {now},
       counters = :counters
 where id = :id;

-- name: worker_drain
-- One whose signs have ended would not hear of it.
update holdfast_worker set draining = 1
 where id = :id and stopped_at is null and seen_at > {now} - live_ms * 1000
returning id;

-- name: worker_list
-- One that is live gave a sign that still counts. One of the version before does not say what it reads, and takes everything.
select id, name, host, pid, version, slots, types, started_at, seen_at, stopped_at, draining, counters, last_error, live_ms, back_at,
       timings, leases, limits, coalesce(reads, '{"*": 32767}')
  from holdfast_worker
 where (not :live or (stopped_at is null and seen_at > {now} - live_ms * 1000))
   and (:ids is null or id in (select value from json_each(:ids)))
 order by started_at desc, id
 limit :limit;

-- name: worker_mark_vanished
-- Workers whose last sign has lapsed without a goodbye; each is reported by the one that marks it.
update holdfast_worker
   set stopped_at = seen_at, last_error = 'vanished: no heartbeat'
 where id in (
   select id from holdfast_worker
    where stopped_at is null and seen_at <= {now} - live_ms * 1000
    order by id limit 100)
returning id, name, seen_at;

-- name: live_totals
-- Running, stuck and bounded counts of blocked and due; the bound shows in reaching :limit. A lease names jobs that have
-- ended until its last one has, so only those that still bear its token are running. What waits is counted queue by queue
-- along the claim's index alone, so that a backlog of delayed jobs is not read: what runs was due, and is subtracted again.
-- What a row is compared with is in type_queue: for constants the planner would read all of an analysed queue into a Bloom
-- filter.
with clock (now) as (select {now}),
priority (level) as (values (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)),
type_queue as (
  select t.value as type, p.level, c.now, 9223372036854775807 as never
    from json_each(:types) t cross join priority p cross join clock c),
held as materialized (
  select count(*) as running, count(*) filter (where l.expires_at <= c.now) as stuck
    from clock c
   cross join holdfast_lease l
   cross join json_each(l.job_ids) j
   cross join holdfast_queue q on q.job_id = j.value and q.token = l.token)
select h.running, h.stuck,
       (select count(*) from (
          select 1 from type_queue l
           cross join holdfast_queue q on q.type = l.type and q.priority = l.level and q.available_at = l.never
           limit :limit)),
       max(0, min(:limit, (select count(*) from (
          select 1 from type_queue l
           cross join holdfast_queue q on q.type = l.type and q.priority = l.level and q.available_at <= l.now
           limit :limit + (select running from held)))
         + (select count(*) from (
              select 1 from json_each(:types) t cross join clock c
               cross join holdfast_queue q on q.type = t.value and q.gate is not null and q.gate_at <= c.now
               limit :limit + (select running from held)))
         - h.running))
  from held h;

-- name: type_totals
-- Per type: live depth from the tally, finished counts and the oldest due row by its index.
with priority (level) as (values (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)),
clock (now) as (select {now}),
total as (
  select type, sum(started - completed - failed - cancelled - removed) as live, sum(completed) as completed,
         sum(failed) as failed, sum(cancelled) as cancelled
    from holdfast_tally group by type)
select t.type, t.live, t.completed, t.failed, t.cancelled, case when t.live > 0 then (
         select min(due) from (select min((
           select q.available_at from holdfast_queue q
            where q.type = t.type and q.priority = p.level and q.available_at <= c.now and q.token is null
            order by q.available_at, q.job_id
            limit 1)) as due
           from priority p
          union all
         -- Of queues the oldest of the first hundred: no index leads to it.
         select min(gate_at) from (
           select q.gate_at from holdfast_queue q
            where q.type = t.type and q.gate is not null and q.token is null and q.gate_at <= c.now limit 100))) end
  from clock c cross join total t
 order by t.type;

-- name: type_due
-- Due jobs of each type, each counted up to :limit along the claim's index alone, as in live_totals.
with clock (now) as (select {now}),
priority (level) as (values (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)),
running as materialized (
  select q.type, count(*) as number
    from holdfast_lease l
   cross join json_each(l.job_ids) j
   cross join holdfast_queue q on q.job_id = j.value and q.token = l.token
   group by q.type),
-- A limit cannot differ by row, so it has room for all that run.
held (number) as materialized (select coalesce(sum(number), 0) from running),
asked as materialized (
  select t.value as type, c.now, coalesce((select number from running r where r.type = t.value), 0) as running
    from json_each(:types) t cross join clock c)
select a.type, max(0, min(:limit,
         (select count(*) from (
            select 1 from priority p
             cross join holdfast_queue q on q.type = a.type and q.priority = p.level and q.available_at <= a.now
             limit :limit + (select number from held)))
         + (select count(*) from (
              select 1 from holdfast_queue q
               where q.type = a.type and q.gate is not null and q.gate_at <= a.now
               limit :limit + (select number from held)))
         - a.running))
  from asked a;

-- name: tally_add
-- Appends counts, one row per type.
insert into holdfast_tally (at, type, started, completed, failed, cancelled, retried, reaped, removed)
select {now}, json_extract(value, '$.type'),
       coalesce(json_extract(value, '$.started'), 0), coalesce(json_extract(value, '$.completed'), 0),
       coalesce(json_extract(value, '$.failed'), 0), coalesce(json_extract(value, '$.cancelled'), 0),
       coalesce(json_extract(value, '$.retried'), 0), coalesce(json_extract(value, '$.reaped'), 0),
       coalesce(json_extract(value, '$.removed'), 0)
  from json_each(:rows);

-- name: tally_add_started
-- Appends one start, which is what most of them are.
insert into holdfast_tally (at, type, started) values ({now}, :type, 1);

-- name: tally_fold_page
-- A batch of rows that are to be folded, as JSON. A row at the beginning of its step is folded already.
select json_group_array(id)
  from (
    select id from holdfast_tally
     where at < :cut
       and at % (case when at < :week then 86400000000 when at < :day then 3600000000 when at < :hours then 720000000
                      when at < :hour then 360000000 else 60000000 end) <> 0
     order by id
     limit :limit);

-- name: tally_fold
-- Folds them into one per type and step: steps of a minute, and the older the wider, each a part of the next, as charts and
-- the week's map draw them. `tally_fold_drop` follows.
insert into holdfast_tally (at, type, started, completed, failed, cancelled, retried, reaped, removed)
select at - at % (case when at < :week then 86400000000 when at < :day then 3600000000 when at < :hours then 720000000
                       when at < :hour then 360000000 else 60000000 end), type, sum(started), sum(completed), sum(failed),
       sum(cancelled), sum(retried), sum(reaped), sum(removed)
  from holdfast_tally
 where id in (select value from json_each(:ids))
 group by 1, 2;

-- name: tally_fold_drop
delete from holdfast_tally where id in (select value from json_each(:ids));
