-- name: type_setting_list
select type, paused, paused_by, holdfast.us(paused_at), lease_ms, timeout_ms, concurrency, max_attempts from holdfast.type_setting order by type;

-- name: type_setting_put
-- Null leaves a value as it is, -1 takes it back to the code's own.
insert into holdfast.type_setting as t (type, paused, paused_by, paused_at, lease_ms, timeout_ms, concurrency, max_attempts, changed_at)
select :type, coalesce(:paused::boolean, false), case when :paused::boolean then :by end, case when :paused::boolean then holdfast.moment(:now::bigint) end,
       case when :lease_ms::integer <> -1 then :lease_ms::integer end, case when :timeout_ms::integer <> -1 then :timeout_ms::integer end, case when :concurrency::integer <> -1 then :concurrency::integer end, case when :max_attempts::integer <> -1 then :max_attempts::integer end,
       holdfast.moment(:now::bigint)
on conflict (type) do update
   set paused = coalesce(:paused::boolean, t.paused),
       paused_by = case when :paused::boolean is null then t.paused_by else excluded.paused_by end,
       paused_at = case when :paused::boolean is null then t.paused_at else excluded.paused_at end,
       lease_ms = case when coalesce(:lease_ms::integer, t.lease_ms) <> -1 then coalesce(:lease_ms::integer, t.lease_ms) end,
       timeout_ms = case when coalesce(:timeout_ms::integer, t.timeout_ms) <> -1 then coalesce(:timeout_ms::integer, t.timeout_ms) end,
       concurrency = case when coalesce(:concurrency::integer, t.concurrency) <> -1 then coalesce(:concurrency::integer, t.concurrency) end,
       max_attempts = case when coalesce(:max_attempts::integer, t.max_attempts) <> -1 then coalesce(:max_attempts::integer, t.max_attempts) end,
       changed_at = excluded.changed_at;

-- name: worker_put
-- Presence and counters; the first write of a worker registers it. A sign that comes after the last one had lapsed is a return.
-- It answers whether jobs may wait in partitions: both tables take no space until the first job does, and looking for a row would walk dead ones.
-- And whether a redrive may be under way, and signals are to be routed.
insert into holdfast.worker as w
  (id, name, host, pid, version, slots, types, started_at, seen_at, counters, last_error, live_ms, timings, leases, limits, reads)
values (:id, :name, :host, :pid::integer, :version, :slots::integer, :types, holdfast.moment(:now::bigint), holdfast.moment(:now::bigint),
        :counters, :last_error, :live_ms::integer, :timings, :leases, :limits, :reads)
on conflict (id) do update
   set seen_at = excluded.seen_at, slots = excluded.slots, types = excluded.types, counters = excluded.counters,
       last_error = excluded.last_error, stopped_at = null, live_ms = excluded.live_ms, timings = excluded.timings, leases = excluded.leases,
       limits = excluded.limits, reads = excluded.reads,
       back_at = case when excluded.seen_at >= w.seen_at + w.live_ms * interval '1 ms' then excluded.seen_at else w.back_at end
returning draining, pg_relation_size('holdfast.gate'::regclass) + pg_relation_size('holdfast.wakeup'::regclass) > 0,
          pg_relation_size('holdfast.redrive'::regclass) > 0,
          exists (select from holdfast.signal s where s.fresh);

-- name: worker_stop
update holdfast.worker set stopped_at = holdfast.moment(:now::bigint), seen_at = holdfast.moment(:now::bigint), counters = :counters where id = :id;

-- name: worker_drain
-- One whose signs have ended would not hear of it.
update holdfast.worker set draining = true
 where id = :id and stopped_at is null and seen_at > holdfast.moment(:now::bigint) - live_ms * interval '1 ms'
returning id;

-- name: worker_list
-- One that is live gave a sign that still counts. One of the version before does not say what it reads, and takes everything.
select id, name, host, pid, version, slots, types, holdfast.us(started_at), holdfast.us(seen_at), holdfast.us(stopped_at), draining, counters,
       last_error, live_ms, holdfast.us(back_at), timings, leases, limits, coalesce(reads, '{"*": 32767}')
  from holdfast.worker
 where (not :live::boolean or (stopped_at is null and seen_at > holdfast.moment(:now::bigint) - live_ms * interval '1 ms'))
   and (:ids::text is null or id = any (array (select json_array_elements_text(:ids::json))))
 order by started_at desc, id
 limit :limit::integer;

-- name: worker_mark_vanished
-- Workers whose last sign has lapsed without a goodbye; each is reported by the one that marks it.
update holdfast.worker
   set stopped_at = seen_at, last_error = 'vanished: no heartbeat'
 where id = any (array (
   select id from holdfast.worker
    where stopped_at is null and seen_at <= holdfast.moment(:now::bigint) - live_ms * interval '1 ms'
    order by id limit 100 for update skip locked))
returning id, name, holdfast.us(seen_at);

-- name: live_totals
-- Running, stuck and bounded counts of blocked and due; the bound shows in reaching :limit. A lease names jobs that have
-- ended until its last one has, so only those that still bear its token are running. What waits is counted queue by queue
-- along the claim's index alone, so that a backlog of delayed jobs is not read: what runs was due, and is subtracted again.
with running as materialized (
  select l.expires_at
    from holdfast.queue q join holdfast.lease l on l.token = q.token
   where q.job_id = any (array (select unnest(job_ids) from holdfast.lease))),
held as materialized (
  select count(*) as running, count(*) filter (where expires_at <= holdfast.moment(:now::bigint)) as stuck from running),
type_queue as materialized (
  select t.type, p.priority
    from unnest(array (select json_array_elements_text(:types::json))) t(type) cross join generate_series(0, 9) p(priority))
select h.running, h.stuck,
       (select count(*) from (
          select from type_queue l cross join lateral (
            select from holdfast.queue q
             where q.type = l.type and q.priority = l.priority and q.available_at = 'infinity'
             order by q.available_at, q.job_id limit :limit::integer) blocked
           limit :limit::integer) b),
       greatest(0, least(:limit::integer, (select count(*) from (
          select from type_queue l cross join lateral (
            select from holdfast.queue q
             where q.type = l.type and q.priority = l.priority and q.available_at <= holdfast.moment(:now::bigint)
             order by q.available_at, q.job_id limit :limit::integer + h.running) due
           limit :limit::integer + h.running) d)
          + (select count(*) from (
               select from unnest(array (select json_array_elements_text(:types::json))) t(type) cross join lateral (
                 select from holdfast.queue q
                  where q.gate > t.type || '"' and q.gate < t.type || '$' and q.gate_at <= holdfast.moment(:now::bigint)
                  order by q.gate limit :limit::integer + h.running) lined
                limit :limit::integer + h.running) g)
          - h.running))
  from held h;

-- name: type_totals
-- Per type: live depth from the tally, finished counts and the oldest due row by its index.
select t.type, t.live, t.completed, t.failed, t.cancelled, holdfast.us(least(o.available_at, g.gate_at))
  from (
    select type, sum(started - completed - failed - cancelled - removed)::bigint as live, sum(completed)::bigint as completed,
           sum(failed)::bigint as failed, sum(cancelled)::bigint as cancelled
      from holdfast.tally group by type) t
  left join lateral (
    select min(x.available_at) as available_at from generate_series(0, 9) p(priority) cross join lateral (
      select q.available_at from holdfast.queue q
       where q.type = t.type and q.priority = p.priority and q.available_at <= holdfast.moment(:now::bigint) and q.token is null
       order by q.available_at, q.job_id limit 1) x) o on t.live > 0
  -- Of queues the oldest of the first hundred: no index leads to it.
  left join lateral (
    select min(x.gate_at) as gate_at from (
      select q.gate_at from holdfast.queue q
       where q.gate > t.type || '"' and q.gate < t.type || '$' and q.token is null and q.gate_at <= holdfast.moment(:now::bigint)
       order by q.gate limit 100) x) g on t.live > 0
 order by t.type;

-- name: type_due
-- Due jobs of each type, each counted up to :limit along the claim's index alone, as in live_totals.
with running as materialized (
  select q.type, count(*)::integer as number
    from holdfast.queue q join holdfast.lease l on l.token = q.token
   where q.job_id = any (array (select unnest(job_ids) from holdfast.lease))
   group by q.type)
select t.type, greatest(0, least(:limit::integer, d.number + g.number - coalesce(r.number, 0)))
  from unnest(array (select json_array_elements_text(:types::json))) t(type)
  left join running r on r.type = t.type
 cross join lateral (
   select count(*) as number from (
     select from generate_series(0, 9) p(priority) cross join lateral (
       select from holdfast.queue q
        where q.type = t.type and q.priority = p.priority and q.available_at <= holdfast.moment(:now::bigint)
        order by q.available_at, q.job_id limit :limit::integer + coalesce(r.number, 0)) due
      limit :limit::integer + coalesce(r.number, 0)) counted) d
 cross join lateral (
   select count(*) as number from (
     select from holdfast.queue q
      where q.gate > t.type || '"' and q.gate < t.type || '$' and q.gate_at <= holdfast.moment(:now::bigint)
      order by q.gate limit :limit::integer + coalesce(r.number, 0)) counted) g;

-- name: tally_fold
-- Folds a batch of tally rows into one per type and step: steps of a minute, and the older the wider, each a part of the
-- next, as charts and the week's map draw them. A row at the beginning of its step is folded already; rows being written are
-- not seen, so nothing is counted twice.
with width as (
  select now - interval '8 days' as week, now - interval '25 hours' as day, now - interval '7 hours' as hours, now - interval '75 minutes' as hour
    from holdfast.moment(:now::bigint) now),
due as (
  select t.ctid as place, f.at
    from holdfast.tally t
   cross join width w
   cross join lateral (
     select date_bin(case when t.at < w.week then interval '24 hours' when t.at < w.day then interval '1 hour'
                          when t.at < w.hours then interval '12 minutes' when t.at < w.hour then interval '6 minutes'
                          else interval '1 minute' end,
                     t.at, timestamptz '1970-01-01 00:00:00+00')) f(at)
   where t.at < date_trunc('minute', holdfast.moment(:now::bigint)) - interval '1 minute' and t.at <> f.at
   limit :limit::integer),
taken as (
  delete from holdfast.tally t using due d where t.ctid = d.place
  returning d.at, t.type, t.started, t.completed, t.failed, t.cancelled, t.retried, t.reaped, t.removed),
folded as (
  insert into holdfast.tally (at, type, started, completed, failed, cancelled, retried, reaped, removed)
  select at, type, sum(started), sum(completed), sum(failed), sum(cancelled), sum(retried), sum(reaped), sum(removed)
    from taken group by at, type)
select count(*) from taken;
