-- name: lease_renew
-- Extends leases by token. What is not returned has been reaped. An expired lease that nobody reaped yet may be renewed:
-- nobody else can have its token.
update holdfast.lease
   set expires_at = holdfast.moment(:now::bigint) + lease_ms * interval '1 ms'
 where token = any (array (select t::uuid from json_array_elements_text(:tokens::json) t))
returning token::text;

-- name: lease_held
-- Every job that bears a token of this worker, whether the worker knows of it or not; each looked up by its key.
select q.job_id::text, q.token::text
  from holdfast.lease l
 cross join lateral unnest(l.job_ids) as j(id)
 cross join lateral (
   select w.job_id, w.token from holdfast.queue w where w.job_id = j.id and w.token = l.token offset 0) q
 where l.worker = :worker;

-- name: lease_free
-- Removes leases whose jobs have all ended; one that still names a held job stays.
delete from holdfast.lease l
 where l.token = any (array (select t::uuid from json_array_elements_text(:tokens::json) t))
   and not exists (select from holdfast.queue q where q.job_id = any (l.job_ids) and q.token = l.token);

-- name: lease_release
-- Gives back every job of these claims, attempts refunded: for a claim whose answer was lost, and for a drain. It waits for
-- the rows of its own leases on purpose: they are known by token, and what was skipped would stay held until it expires.
with gone as (
  select l.token, l.job_ids from holdfast.lease l
   where l.token = any (array (select t::uuid from json_array_elements_text(:tokens::json) t))
   for update),
freed as (
  update holdfast.queue q set token = null, attempt = q.attempt - 1
   where q.job_id = any (array (select unnest(job_ids) from gone)) and q.token = any (array (select token from gone))
  returning q.job_id, q.type, q.priority, q.gate, q.gate_at),
freed_partition as (
  select type, priority, gate, gate_at as since from freed),
signalled as (
  {signal_freed}),
removed as (delete from holdfast.lease where token = any (array (select token from gone)))
select job_id::text, type from freed;

-- name: lease_reap
-- Takes back what expired leases still hold, oldest first, all types. The first death of a worker is rarely a job's fault: the
-- job keeps its place and is due at once; after another it waits. A job is poison only by a death in which it ran alone:
-- any other may be a neighbour's fault. Rows locked by another transaction stay with their
-- lease and are found by the next run; `:after` pages past leases that could not be emptied. Hashed as job_finish is.
with dead as materialized (
  select l.* from holdfast.lease l
   where l.expires_at <= holdfast.moment(:now::bigint)
     and (l.expires_at, l.token) > (coalesce(to_timestamp(:after::bigint / 1000000.0), '-infinity'), coalesce(:after_token::uuid, '00000000-0000-0000-0000-000000000000'))
   order by l.expires_at, l.token
   limit :limit::integer
   for update skip locked),
named as materialized (
  select d.token, d.worker, d.expires_at, d.claimed_at, d.max_attempts, d.alone, j.id
    from dead d cross join lateral unnest(d.job_ids) as j(id)),
bearing as (
  select q.job_id, q.token, q.attempt, q.crashes, q.max_attempts from holdfast.queue q
   where q.job_id = any (array (select id from named)) and ((q.job_id, q.token) in (select id, token from named)) is true
   for update skip locked),
judged as materialized (
  select b.job_id, n.worker, n.token, n.claimed_at, b.crashes + 1 as crashes,
         (extract(epoch from holdfast.moment(:now::bigint) - n.expires_at) * 1000)::bigint as stale_ms,
         n.alone and b.crashes + 1 >= :poison::integer as poisoned,
         case when n.alone then '; the job ran alone'
              when b.crashes + 1 >= :suspected::integer then '; the job is suspected and runs alone next' else '' end as verdict,
         coalesce(b.max_attempts, n.max_attempts) > 0 and b.attempt >= coalesce(b.max_attempts, n.max_attempts) as spent
    from bearing b join named n on n.id = b.job_id and n.token = b.token),
ended as (
  delete from holdfast.queue q where q.job_id = any (array (select job_id from judged where poisoned or spent))
  returning q.job_id, q.type, q.attempt, q.fence, q.awaited, q.priority, q.gate, q.gate_at,
            {is_ordered} as ordered),
freed as (
  update holdfast.queue q
     set token = null, woken = null, crashes = q.crashes + 1,
         (available_at, gate_at, rests_until) = (
           select case when q.gate is null then coalesce(n.at, q.available_at) end,
                  case when q.gate is null or {is_ordered} then q.gate_at else coalesce(n.at, q.gate_at) end,
                  case when {is_ordered} then coalesce(n.at, q.rests_until) end
             from (
               select case when q.crashes > 0 then holdfast.moment(:now::bigint) + interval '1 ms'
                        * least(d.backoff_cap_ms, d.backoff_base_ms * power(2, least(q.crashes, 20) - 1))::bigint end as at
                 from dead d where d.token = q.token) n)
   where q.job_id = any (array (select job_id from judged where not (poisoned or spent)))
  returning q.job_id, q.type, q.attempt, q.fence, q.awaited, q.priority, q.gate, q.gate_at),
freed_partition as (
  select type, priority, gate, null::timestamptz as since from ended
  union all
  select type, priority, gate, gate_at from freed),
signalled as (
  {signal_freed}),
written as materialized (
  select j.*, r.type, r.attempt, r.fence, r.awaited, r.state, r.gate, r.place_at
    from judged j
    full join (
      select job_id, type, attempt, fence, awaited, 'failed' as state, gate,
             case when ordered then gate_at end as place_at from ended
      union all
      select job_id, type, attempt, fence, awaited, 'pending', null, null from freed) r on r.job_id = j.job_id),
kept as (
  insert into holdfast.outcome (job_id, type, state, error, fingerprint, attempts, crashes, fence, token, worker, started_at, finished_at, gate, gate_at)
  select job_id, type, 'failed',
         case when poisoned and crashes = 1 then 'WorkerDied: the worker died while it ran this job, alone'
              when poisoned then 'WorkerDied: the worker died ' || crashes || ' times while it ran this job, the last time alone'
              when attempt = 1 then 'WorkerDied: the worker died and the only attempt is spent'
              else 'WorkerDied: the worker died and all ' || attempt || ' attempts are spent' end,
         case when poisoned then 'worker-died' else 'worker-died-attempts-spent' end,
         attempt, crashes, fence, null, worker, claimed_at, holdfast.moment(:now::bigint), gate, place_at
    from written where state = 'failed'),
remembered as (
  insert into holdfast.attempt ({attempt_columns})
  select job_id, fence, attempt, 'reap', worker, claimed_at, holdfast.moment(:now::bigint),
         'WorkerDied: the lease of ' || worker || ' ended '
           || case when stale_ms < 1000 then stale_ms || ' ms' else round(stale_ms / 1000.0, 1) || ' s' end || ' ago' || verdict
    from written
  on conflict do nothing),
left_over as materialized (
  select n.token, array_agg(n.id) as job_ids
    from named n
   cross join lateral (select from holdfast.queue w where w.job_id = n.id and w.token = n.token offset 0) q
   where (n.id in (select job_id from judged)) is not true
   group by n.token),
shrunk as (
  update holdfast.lease l set job_ids = o.job_ids from left_over o
   where l.token = any (array (select token from left_over)) and l.token = o.token),
removed as (
  delete from holdfast.lease l
   where l.token = any (array (select token from dead)) and l.token <> all (array (select token from left_over))),
tallied as (
  insert into holdfast.tally (at, type, failed, reaped)
  select holdfast.moment(:now::bigint), type, count(*) filter (where state = 'failed'), count(*) from written group by type)
select job_id::text, type, worker, state, crashes, stale_ms, awaited, token::text, null::bigint, null::text from written
union all
select null, null, worker, null, null, null, null, null, holdfast.us(expires_at), token::text from dead;

-- name: lease_evict
-- Ends the sessions whose transaction bears the mark of a lost attempt: the process behind it may be stopped or cut off, and
-- the rows that its handler locked would stay locked. The mark is a shared lock by two keys, see `transaction.py`; cycles and
-- migrations take theirs by one. A session that this role may not end is left alone.
select pg_terminate_backend(l.pid)
  from json_to_recordset(:rows::json) as x(id text, token text)
  join pg_locks l on l.classid = (hashtext(x.token)::bigint & 4294967295)::oid
                 and l.objid = (hashtext(x.id)::bigint & 4294967295)::oid
  join pg_database d on d.oid = l.database and d.datname = current_database()
  join pg_stat_activity a on a.pid = l.pid
  join pg_roles r on r.oid = a.usesysid
 where l.locktype = 'advisory' and l.objsubid = 2 and l.mode = 'ShareLock' and l.granted and l.pid <> pg_backend_pid()
   and (pg_has_role(r.oid, 'USAGE') or pg_has_role('pg_signal_backend', 'USAGE'))
   and (not r.rolsuper or current_setting('is_superuser') = 'on');

-- name: lease_heal
-- Leases that end later than they can by the present clock were given by one that ran ahead: they begin again now.
update holdfast.lease l
   set expires_at = holdfast.moment(:now::bigint) + l.lease_ms * interval '1 ms'
 where l.token = any (array (select f.token from holdfast.lease f order by f.expires_at desc limit 1000))
   and l.expires_at > holdfast.moment(:now::bigint) + l.lease_ms * interval '1 ms' + interval '1 minute'
returning l.token::text;

-- name: revision_heal
-- What debounced jobs were asked for by a clock that ran ahead was asked for now.
update holdfast.revision r set at = holdfast.moment(:now::bigint)
 where r.at > holdfast.moment(:now::bigint) + interval '1 minute';

-- name: limit_heal
-- Pauses that began by a clock that ran ahead begin now.
update holdfast.limit_setting s
   set rests_until = holdfast.moment(:now::bigint) + (s.rests_until - s.changed_at), changed_at = holdfast.moment(:now::bigint)
 where s.rests_until is not null and s.changed_at > holdfast.moment(:now::bigint) + interval '1 minute';

-- name: step_heal
-- What functions began to wait for by a clock that ran ahead ends as long from now as it was to last. A time that the code named stays:
-- it is the argument of its sleep.
update holdfast.step s
   set until = holdfast.moment(:now::bigint) + (s.until - s.started_at), started_at = holdfast.moment(:now::bigint)
 where s.state = 'open' and s.until is not null and s.arguments is null
   and s.started_at > holdfast.moment(:now::bigint) + interval '1 minute';

-- name: queue_heal
-- A page of the queue, by id. A job that never ran is due from the moment it was made or unblocked, one that failed waits
-- from the end of that attempt, one that was snoozed from about its claim, whose time the last 42 bits of its fence tell; one
-- that was reaped at its place was due before that.
-- Where that moment is yet to come, a clock ran ahead: the job is due now, or as long from now as it was to wait. What was
-- planned stays. One that waits for quiet is due now, and put off by those who take it. Jobs in a queue are moved there, an
-- ordered one keeps waiting at its place; their partitions are polled, since signals are dated by the old clock too.
with page as materialized (
  select q.job_id, q.available_at, q.fence, q.token, q.type, q.priority, q.gate, q.gate_at,
         case when q.gate_at is null then q.available_at else greatest(q.gate_at, q.rests_until) end as known_at
    from holdfast.queue q
   where q.job_id > :after::uuid order by q.job_id limit 1000),
clock as (
  select holdfast.moment(:now::bigint) as now, holdfast.moment(:now::bigint) + interval '1 minute' as soon),
dated as materialized (
  select p.job_id, p.available_at, p.gate_at, p.known_at, j.planned_at, j.created_at, p.fence, {is_debounced} as debounced,
         case when a.ended_at is not null then a.ended_at else to_timestamp((p.fence & ((1::bigint << 42) - 1)) / 1000.0) end as since,
         coalesce(a.kind = 'reap', false) as was_reaped
    from page p
   cross join lateral (select j.planned_at, j.created_at, j.blockers, j.debounced from holdfast.job j where j.id = p.job_id offset 0) j
    left join lateral (
      select t.ended_at, t.kind from holdfast.attempt t
       where t.job_id = p.job_id and t.fence = p.fence order by t.attempt desc limit 1) a on true
   where p.token is null and p.known_at < 'infinity' and p.known_at > (select soon from clock)),
ahead as materialized (
  select d.job_id, d.available_at, d.gate_at, d.known_at,
         case when d.fence = 0 and d.debounced and d.created_at > c.soon then c.now
              when d.fence = 0 then greatest(d.planned_at, c.now)
              when d.known_at = d.created_at then c.now
              when d.since > c.soon and (d.was_reaped or d.known_at >= d.since)
              then c.now + greatest(d.known_at - d.since, interval '0') end as due_at
    from dated d cross join clock c),
healed as (
  update holdfast.queue q
     set available_at = case when q.gate is null then h.due_at end,
         gate_at = case when q.gate is null then null when {is_ordered} then least(q.gate_at, (select now from clock))
                        else h.due_at end,
         rests_until = case when {is_ordered} then least(q.rests_until, h.due_at) end
    from ahead h
   where q.job_id = any (array (select job_id from ahead where due_at < known_at)) and q.job_id = h.job_id
     and q.token is null and (q.available_at = h.available_at or q.available_at is null and h.available_at is null)
     and (q.gate_at = h.gate_at or q.gate_at is null and h.gate_at is null)
  returning q.job_id, q.gate_at),
signalled as (
  insert into holdfast.wakeup (type, priority, at, gate, since)
  select p.type, p.priority, (select now from clock), p.gate, min(coalesce(h.gate_at, p.gate_at))
    from page p left join healed h on h.job_id = p.job_id
   where p.gate_at is not null and p.token is null
   group by p.type, p.priority, p.gate)
select (select job_id::text from page order by job_id desc limit 1), (select count(*) from page), (select count(*) from healed);

-- name: lease_isolate
-- Notes, before its only job begins, that the worker runs nothing else.
update holdfast.lease set alone = true where token = :token::uuid returning token::text;

-- name: lease_list
-- With how many jobs each still holds: a lease names what was claimed until all of it has ended.
select l.token::text, l.worker, holdfast.us(l.claimed_at), holdfast.us(l.expires_at),
       (select count(*)::integer from unnest(l.job_ids) as j(id)
         cross join lateral (select from holdfast.queue q where q.job_id = j.id and q.token = l.token offset 0) held)
  from holdfast.lease l
 where :worker::text is null or l.worker = :worker
 order by l.expires_at, l.token
 limit :limit::integer;

-- name: lease_guard
-- Until its end this transaction holds a row that others want: a process that is stopped here must not keep it forever.
select set_config('idle_in_transaction_session_timeout', :idle_ms, true);

-- name: progress_put
-- How far attempts are. The token is compared without a lock: a row that is ending loses nothing by a late note.
insert into holdfast.progress as p (job_id, fence, fraction, note, at)
select q.job_id, q.fence, x.fraction, x.note, holdfast.moment(:now::bigint)
  from json_to_recordset(:rows::json) as x(id uuid, token uuid, fraction double precision, note text)
 cross join lateral (
   select w.job_id, w.fence from holdfast.queue w where w.job_id = x.id and w.token = x.token offset 0) q
on conflict (job_id) do update
   set fence = excluded.fence, fraction = excluded.fraction, note = excluded.note, at = excluded.at
 where p.fence <= excluded.fence;

-- name: progress_drop
delete from holdfast.progress p
 using json_to_recordset(:rows::json) as x(id uuid, fence bigint)
 where p.job_id = x.id and p.fence <= x.fence;

-- name: progress_get
select p.job_id::text, p.fence, p.fraction::text, p.note, holdfast.us(p.at)
  from holdfast.progress p join holdfast.queue q on q.job_id = p.job_id and q.fence = p.fence and q.token is not null
 where p.job_id = any (array (select i::uuid from json_array_elements_text(:ids::json) i))
 order by p.job_id;
