-- fragment: partition_newest
-- The newest row of a partition, by `turn`, in the snapshot, or none: if it was replaced since, there is nothing to lock. Sliding on to an older
-- one would be a second partition. Newest first, so that rows nobody can vacuum yet are not walked.
select g.ctid as place, g.turn, g.mask as known_mask, g.holders, g.spent_at, g.spent, g.front_at as known_at, g.front_id as known_id,
            g.looked_at
       from holdfast.gate g
      where g.ctid = (select n.ctid from holdfast.gate n where n.id = a.id and n.turn > 0 order by n.turn desc limit 1)
        for update skip locked

-- fragment: partition_unknown
null::tid, 0::bigint, 0, '{}'::uuid[], '{}'::bigint[], '{}'::integer[], '-infinity'::timestamptz,
         '00000000-0000-0000-0000-000000000000'::uuid, '-infinity'::timestamptz

-- fragment: partition_spent
-- The starts that still count: those within the period, and none of a clock that ran ahead.
select coalesce(array_agg(x.at order by x.at), '{}') as ats, coalesce(array_agg(x.n order by x.at), '{}') as ns,
            coalesce(sum(x.n), 0)::integer as started
       from unnest(o.spent_at, o.spent) x(at, n)
      where o.rate is not null and x.at > clock.us - o.period_ms * 1000 and x.at <= clock.us + 60000000

-- fragment: partition_spend
-- The starts with those of this poll; within one step they are one entry, dated by its last.
case when j.got = 0 or j.rate is null then j.ats
              when j.ats[cardinality(j.ats)] / j.step = clock.us / j.step
              then j.ats[1 : cardinality(j.ats) - 1] || greatest(j.ats[cardinality(j.ats)], clock.us)
              else j.ats || clock.us end,
         case when j.got = 0 or j.rate is null then j.ns
              when j.ats[cardinality(j.ats)] / j.step = clock.us / j.step
              then j.ns[1 : cardinality(j.ns) - 1] || (j.ns[cardinality(j.ns)] + j.got)
              else j.ns || j.got end

-- fragment: cost_charged
-- What counts of the costs of attempts: as of starts, the steps that lie within the period, at least in part.
select coalesce(sum(c.cost), 0) as charged from holdfast.charge c
      where o.cost_rate is not null and c.gate = o.id and c.at > clock.us - o.cost_period_ms * 1000 and c.at <= clock.us + 60000000

-- fragment: cost_of_holder
coalesce((select j.cost from holdfast.job j where j.id = q.job_id and o.cost_allowed is not null), 1)

-- fragment: cost_left
-- What a partition that counts costs has left; less than nothing after attempts that spent more than was said.
v.charged, h.busy_cost, case when coalesce(o.cost_allowed, o.cost_rate) is not null
              then greatest(0, least(o.cost_allowed - h.busy_cost, o.cost_rate - v.charged)) end as cost_left

-- fragment: cost_opens
-- When a partition `h` has room for `x.cost`, in microseconds: the end of the first step without which it fits.
(select e.at + h.cost_period_ms * 1000
              from (
                select c.at, sum(c.cost) over (order by c.at, c.step) as freed from holdfast.charge c
                 where c.gate = h.id and c.at > clock.us - h.cost_period_ms * 1000 and c.at <= clock.us + 60000000) e
             where h.charged + x.cost - e.freed <= h.cost_rate
             order by e.at limit 1)

-- fragment: cost_next
-- What was taken now ends last.
(select 'epoch'::timestamptz + coalesce({cost_opens}, clock.us + h.cost_period_ms * 1000) * interval '1 microsecond'
              from (select p.got_cost + p.next_cost as cost) x)

-- fragment: cost_urgent
-- When the next job of a queue is due that is more urgent than the first that does not fit: it may.
(select min(w.gate_at)
              from unnest('{0,1,2,3,4,5,6,7,8,9}'::smallint[]) level(priority)
             cross join lateral (
               select w.gate_at from holdfast.queue w
                where w.gate = h.id and w.priority = level.priority and w.token is null and w.gate_at > clock.now
                order by w.gate_at, w.job_id limit 1) w
             where level.priority < p.next_priority)

-- fragment: cost_dealt
select x.job_id, x.place from (

-- fragment: cost_fits
x.cost_to <= coalesce((select cost_left from shared_room), x.cost_to)

-- fragment: cost_shared_wait
-- Whether the first of what was dealt waits for a limit of all keys, and until when, where that is a matter of time.
select x.cost is not null as is_waiting, (
           select max({cost_opens}) from shared_state h where h.charged + x.cost > h.cost_rate) as opens_us
    from clock left join lateral (
      select s.cost from seen s
       where s.card <= s.room and s.due_at <= clock.now and not s.is_too_much and (s.crashes = 0 or :allow_crashed::boolean)
         and not exists (select from chosen) and s.cost > (select cost_left from shared_room)
       order by s.priority, (s.card - 1) / s.weight, s.at, s.n, s.card
       limit 1) x on true

-- fragment: cost_written
-- Costs of one step are one row, dated by its last.
charged as (
  insert into holdfast.charge as c (gate, step, at, cost)
  select x.id, clock.us / {cost_step}, clock.us, x.cost
    from (
      select id, cost_rate, cost_period_ms, got_cost as cost from judged
      union all
      select s.id, s.cost_rate, s.cost_period_ms, t.cost
        from shared_state s cross join (select sum(got_cost) as cost from judged) t) x
   cross join clock
   where x.cost_rate is not null and x.cost > 0
   order by 1
  on conflict (gate, step) do update set at = greatest(c.at, excluded.at), cost = c.cost + excluded.cost),
past as (
  delete from holdfast.charge c
   where c.ctid = any (array (
     select o.place from (
       select id, cost_rate, cost_period_ms from judged where got > 0
       union all
       select id, cost_rate, cost_period_ms from shared_state where exists (select from got)) h
      cross join clock
      cross join lateral (
        select c.ctid as place from holdfast.charge c
         where h.cost_rate is not null and c.gate = h.id and c.at <= clock.us - h.cost_period_ms * 1000
           for update skip locked) o)))

-- fragment: cost_step
case when x.cost_rate <= 64 then 1 else greatest(1, x.cost_period_ms * 1000 / 32) end

-- fragment: partition_batch
-- How many jobs of a queue fill batches or have waited long enough for more, and when the rest will have, in microseconds.
select array[x.number - case when x.ripe_us > clock.us then x.number % :batch::integer else 0 end, x.ripe_us]
       from (
         select count(*) as number,
                min(holdfast.us(y.gate_at)) filter (where y.place > y.number - y.number % :batch::integer)
                  + :batch_wait_ms::bigint * 1000 as ripe_us
           from (
             select z.gate_at, row_number() over (order by z.priority, z.gate_at, z.job_id) as place, count(*) over () as number
               from (
                 select w.*
                   from unnest('{0,1,2,3,4,5,6,7,8,9}'::smallint[]) level(priority)
                  cross join lateral (
                    select w.priority, w.gate_at, w.job_id from holdfast.queue w
                     where w.gate = o.id and w.priority = level.priority and (w.gate_at, w.job_id) > (o.front_at, o.front_id)
                       and w.gate_at <= clock.now and w.token is null and (w.crashes = 0 or :allow_crashed::boolean)
                       and (w.version > :reads::smallint) is not true
                     order by w.gate_at, w.job_id
                     limit t.round_size) w
                  where o.mask & (1 << level.priority) <> 0
                  order by w.priority, w.gate_at, w.job_id
                  limit t.round_size) z) y) x

-- name: limit_claim
-- One poll of the partitions of a type: reads due signals in order of time, locks their partitions, takes the first jobs of each queue as
-- far as there is room, deals them like cards, first one of every queue, then the second, and replaces the partitions. The signals
-- that it answered go, and it leaves one where more waits or becomes due later. A partition that is full gets none: who leaves it
-- writes one. Nothing waits: what others hold is left to another poll, with its signals. Limits of all keys together come
-- first; if one of them is full or held by another claimer, no signal is touched. Jobs are chosen by the snapshot and then
-- locked: passing over a locked head would break the order, so it is tried again soon. Holders count while they bear a token.
-- With batches a queue is let through as far as it fills batches or has waited long enough, and queues beyond :calls keep their place.
-- Jobs that are newer than the worker reads are left alone, and so are their signals; where a poll finds one whose signal is gone, it
-- leaves another, for those that read it. A newer job at the head of an ordered queue holds it.
-- A partition is made by inserting its turn 0. Subselects and `is true` keep the plan whatever the statistics say.
-- A queue is looked up by its partition alone, which no index but its own begins with. ('"' and '$' come before and after '#'.)
-- The lines that begin with `--cost` are those of `limit_claim_by_cost`, for types with limits that count costs: of a queue, and then of
-- all that was dealt, goes what comes before the first job that does not fit, so that none is overtaken by a lighter one.
with clock as materialized (
  {claim_clock}),
newer as materialized (
  select min(w.version) as version from holdfast.queue w where w.type = :type and w.version > :reads::smallint),
every as materialized (
  select s.allowed, s.rate, s.period_ms,
         (select t.id from holdfast.limit_setting t where t.id >= :type || '#' and t.id < :type || '$' order by t.id limit 1)
           is not null as has_own
    from (values (1)) one(row) left join holdfast.limit_setting s on s.id = '*' || :type),
rule as materialized (
  select x.id, coalesce(s.allowed, x.allowed) as allowed, coalesce(s.rate, x.rate) as rate,
         coalesce(s.period_ms, x.period_ms) as period_ms, s.rests_until
--cost     , x.cost_allowed, x.cost_rate, x.cost_period_ms
    from (
      select r.* from unnest(array (select json_array_elements(:shared::json))) e(one)
       cross join lateral json_to_record(e.one) as r(id text, allowed integer, rate integer, period_ms bigint
--cost       , cost_allowed bigint, cost_rate bigint, cost_period_ms bigint
       )) x
    left join lateral (
      select t.allowed, t.rate, t.period_ms, t.rests_until from holdfast.limit_setting t where t.id = x.id offset 0) s on true),
shared_made as (
  insert into holdfast.gate (id, turn)
  select a.id, 0 from rule a
   where (select n.turn from holdfast.gate n where n.id = a.id order by n.turn desc limit 1) is null
   order by 1
  on conflict do nothing
  returning id),
shared_open as materialized (
  select a.*, g.* from rule a cross join lateral (
    {partition_newest}) g
  union all
  select a.*, {partition_unknown}
    from rule a where (a.id in (select id from shared_made)) is true),
shared_state as materialized (
  select o.*, h.still, h.busy, w.ats, w.ns, w.started,
         case when o.rate <= 64 then 1 else greatest(1, o.period_ms * 1000 / 32) end as step,
         case when o.rests_until > clock.now then 0
              else greatest(0, least(:limit::integer, coalesce(o.allowed - h.busy, :limit::integer),
                                     coalesce(o.rate - w.started, :limit::integer))) end as room
--cost     , {cost_left}
    from shared_open o
   cross join clock
   cross join lateral (
     select coalesce(array_agg(q.job_id), '{}') as still, count(*)::integer as busy
--cost         , coalesce(sum({cost_of_holder}), 0) as busy_cost
       from holdfast.queue q
      where o.allowed is not null and q.job_id = any (o.holders) and q.token is not null) h
   cross join lateral (
     {partition_spent}) w
--cost    cross join lateral ({cost_charged}) v
   ),
shared_room as materialized (
  select case when (select count(*) from rule) > (select count(*) from shared_state) then -1
              else coalesce((select min(room) from shared_state), :limit::integer) end as room
--cost     , (select min(cost_left) from shared_state) as cost_left
  ),
called as materialized (
  select k.*
    from unnest(:priorities::smallint[], :mark_ats::bigint[], :mark_ns::bigint[]) p(priority, at, n)
   cross join lateral (
     select k.ctid as place, k.priority, k.at, k.n, k.gate, k.since
       from holdfast.wakeup k
      where k.type = :type and k.priority = p.priority
        and (k.at, k.n) > ('epoch'::timestamptz + p.at * interval '1 microsecond', p.n)
        and k.at <= (select now from clock) and (select room from shared_room) > 0 and (k.version > :reads::smallint) is not true
      order by k.at, k.n
      limit :window::integer) k
   order by k.priority, k.at, k.n
   limit :window::integer),
asked as materialized (
  select gate as id, min(priority) as asked_priority, min(at) as at, min(n) as n, min(since) as since, bit_or(1 << priority) as asked_mask
    from called group by gate order by 2, 3, 4),
-- Partitions that others hold are passed over; those that do not exist yet are made.
polled as materialized (
  select a.*, g.* from asked a cross join lateral (
    select * from (
      {partition_newest}) known
    union all
    select {partition_unknown}
     where (select n.turn from holdfast.gate n where n.id = a.id order by n.turn desc limit 1) is null
    limit 1) g
   limit :partitions::integer),
made as (
  insert into holdfast.gate (id, turn)
  select id, 0 from polled where place is null order by 1
  on conflict do nothing
  returning id),
found as materialized (
  select * from polled where place is not null or (id in (select id from made)) is true),
-- All signals of these partitions are answered, not only those that called: those since the last poll, older ones in their turn.
key_queue as materialized (
  select f.id, f.asked_priority, f.at, f.n, least(f.since, w.since) as since, f.asked_mask | coalesce(w.mask, 0) as asked_mask,
         f.place, f.turn, f.known_mask, f.holders, f.spent_at, f.spent, f.known_at, f.known_id, f.looked_at, w.places
    from found f
   cross join lateral (
     select array_agg(k.ctid) as places, min(k.since) as since, bit_or(1 << k.priority) as mask
       from (
         select k.ctid, k.since, k.priority from holdfast.wakeup k
          where k.gate = f.id and k.at > f.looked_at and k.at <= (select now from clock)
            and (k.version > :reads::smallint) is not true
          order by k.at
          limit 10000) k) w),
ruled as materialized (
  select l.*, r.allowed, r.rate, r.period_ms, r.rests_until, l.known_mask | l.asked_mask as mask,
         case when r.rate <= 64 then 1 else greatest(1, r.period_ms * 1000 / 32) end as step,
         coalesce((:weights::json ->> l.id)::integer, :per_round::integer) as weight,
--cost     case when l.id <> :type || '#' then :cost_allowed::bigint end as cost_allowed,
--cost     case when l.id <> :type || '#' then :cost_rate::bigint end as cost_rate, :cost_period_ms::bigint as cost_period_ms,
         case when l.since <= l.known_at then l.since else l.known_at end as front_at,
         case when l.since <= l.known_at then '00000000-0000-0000-0000-000000000000' else l.known_id end as front_id
    from key_queue l
   cross join lateral (
     select coalesce(s.allowed, case when l.id <> :type || '#' then coalesce(e.allowed, :allowed::integer) end) as allowed,
            coalesce(s.rate, case when l.id <> :type || '#' then coalesce(e.rate, :rate::integer) end) as rate,
            coalesce(s.period_ms, e.period_ms, :period_ms::bigint) as period_ms, s.rests_until
       from every e left join lateral (
         select t.allowed, t.rate, t.period_ms, t.rests_until from holdfast.limit_setting t
          where t.id = l.id and (select has_own from every) offset 0) s on true) r),
held as materialized (
  select o.*, h.still, h.busy, w.ats, w.ns, w.started, b.ready[2] as ready_us,
         case when o.rests_until > clock.now then 0
              else greatest(0, least(t.round_size, o.allowed - h.busy, o.rate - w.started, b.ready[1])) end as room
--cost     , {cost_left}
    from ruled o
   cross join clock
   cross join (
     select case when (select count(*) from called) >= :window::integer then 1
                 else greatest(1, ceil(:limit::numeric / greatest(1, count(*)))) end::integer as share,
            greatest(1, :calls::integer / greatest(1, count(*)))::integer as batches from key_queue) s
   cross join lateral (select coalesce(s.batches * :batch::integer, s.share * o.weight) as round_size) t
   cross join lateral (
     select case when :batch::integer is not null then (
     {partition_batch}) end as ready
     offset 0) b
   cross join lateral (
     select coalesce(array_agg(x.job_id), '{}') as still, count(*)::integer as busy
--cost         , coalesce(sum(x.cost), 0) as busy_cost
       from (
         select q.job_id
--cost             , {cost_of_holder} as cost
           from holdfast.queue q
          where o.allowed is not null and q.job_id = any (o.holders) and q.token is not null
         union all
         select e.job_id
--cost             , 0
           from holdfast.outcome e
          where :holds::boolean and e.job_id = any (o.holders) and e.state = 'failed') x) h
   cross join lateral (
     {partition_spent}) w
--cost    cross join lateral ({cost_charged}) v
   ),
-- The first of each queue that are due, and then the next that will be: one more than there is room for.
seen as materialized (
  select h.id, h.at, h.n, h.room, h.weight, d.*
--cost     , coalesce(d.cost_to > h.cost_left, false) as is_too_much
    from held h
   cross join lateral (
     select w.*, row_number() over (order by w.is_later, w.level, w.gate_at, w.job_id)::integer as card
--cost         , sum(w.cost) over (order by w.is_later, w.level, w.gate_at, w.job_id) as cost_to
       from unnest(case when h.mask = 32 then '{5}'::smallint[] else '{0,1,2,3,4,5,6,7,8,9}' end) level(priority)
      cross join lateral (
        select w.ctid as place, w.job_id, w.priority, w.gate_at, w.crashes, greatest(w.gate_at, w.rests_until) as due_at,
               (w.version > :reads::smallint) is true as is_newer, l.is_later, case when l.is_later then 0 else w.priority end as level
--cost           , case when w.version > :reads::smallint then 0
--cost                  else least(coalesce((select j.cost from holdfast.job j where j.id = w.job_id), 1), :max_cost::bigint) end as cost
          from holdfast.queue w
         cross join lateral (select w.gate_at > (select now from clock) and not :ordered::boolean as is_later) l
         where w.gate = h.id and w.priority = level.priority
           and (w.gate_at, w.job_id) > (h.front_at, h.front_id) and w.token is null
           and (w.crashes = 0 or :allow_crashed::boolean or :ordered::boolean)
           and ((w.version > :reads::smallint) is not true or :ordered::boolean)
         order by w.gate_at, w.job_id
         limit h.room + 1) w
      where h.mask & (1 << level.priority) <> 0
      order by w.is_later, w.level, w.gate_at, w.job_id
      limit h.room + 1) d
   where h.room > 0
     and (:batch::integer is null
          or h.id = any (array (
            select x.id from held x where x.room > 0 order by x.asked_priority, x.at, x.n limit :calls::integer)))),
chosen as materialized (
--cost   {cost_dealt}
  select s.job_id, s.place
--cost     , s.cost, sum(s.cost) over (order by s.priority, (s.card - 1) / s.weight, s.at, s.n, s.card) as cost_to
    from seen s
   where s.card <= s.room and s.due_at <= (select now from clock) and not s.is_newer
--cost     and not s.is_too_much
     and (s.crashes = 0
          or (:allow_crashed::boolean and s.job_id = (
            select c.job_id from seen c where c.crashes > 0 and c.card <= c.room and c.due_at <= (select now from clock)
--cost               and not c.is_too_much
             order by c.priority, c.gate_at, c.job_id limit 1)))
   order by s.priority, (s.card - 1) / s.weight, s.at, s.n
--cost     , s.card
   limit (select greatest(0, least(:limit::integer, room)) from shared_room)
--cost   ) x where {cost_fits}
  ),
--cost shared_wait as materialized ({cost_shared_wait}),
free as (
  select q.ctid as place from holdfast.queue q
   where q.ctid = any (array (select place from chosen)) and q.token is null and q.gate_at <= (select now from clock)
   for update skip locked),
-- A row that was moved since, so that it is not where the snapshot has it, is passed over like one that is locked.
claimed as (
  update holdfast.queue q
     set attempt = q.attempt + 1, fence = greatest(q.fence + 1, (select lowest_fence from clock)), token = :token::uuid
--cost       , spent = null
   where q.ctid = any (array (select place from free))
  returning q.job_id, q.token, q.type, q.priority, q.gate_at, q.attempt, q.max_attempts, q.crashes, q.fence, q.gate, q.failing,
            q.awaited, q.steps, q.expires_at),
got as materialized (
  select job_id from claimed),
leased as (
  insert into holdfast.lease (token, worker, claimed_at, expires_at, lease_ms, max_attempts, backoff_base_ms, backoff_cap_ms, job_ids)
  select :token::uuid, :worker, clock.now, clock.now + :lease_ms::integer * interval '1 ms',
         :lease_ms::integer, :max_attempts::integer, :backoff_base_ms::integer, :backoff_cap_ms::integer, taken.job_ids
    from (select array_agg(job_id) as job_ids from got having count(*) > 0) taken cross join clock),
outcome_of as materialized (
  select d.id, (count(*) filter (where d.is_due))::integer as seen, (count(*) filter (where d.is_chosen))::integer as chosen,
         (count(*) filter (where d.is_got))::integer as got, array_agg(d.job_id order by d.card) filter (where d.is_got) as job_ids,
         max(d.card) filter (where d.is_got) as last_card, max(d.gate_at) filter (where d.is_got) as last_at,
         min(10 * d.card + d.priority) filter (where not d.is_got) % 10 as next_priority,
         min(d.due_at) filter (where not d.is_got and (d.card = 1 or not :ordered::boolean)) as next_at,
         bool_or(d.crashes > 0 and d.card <= d.room and not d.is_chosen and d.is_due
--cost           and not d.is_too_much
         ) as is_suspected,
         bool_or(d.is_newer and d.card = 1) as is_newer
--cost     , coalesce(sum(d.cost) filter (where d.is_got), 0) as got_cost,
--cost     (array_agg(d.cost order by d.card) filter (where not d.is_got and d.is_due and not d.is_newer))[1] as next_cost
    from (
      select s.id, s.is_newer, s.card, s.room, s.job_id, s.priority, s.gate_at, s.due_at, s.crashes, s.due_at <= (select now from clock) as is_due,
             (s.job_id in (select job_id from got)) is true as is_got,
             (s.job_id in (select job_id from chosen)) is true as is_chosen
--cost         , s.cost, s.is_too_much
        from seen s
      offset 0) d
   group by d.id),
-- (A full join is hashed whatever the statistics say.)
judged as materialized (
  select j.*, coalesce(j.again <= (select now from clock) and j.got = 0, false) as is_kept from (
  select h.*, coalesce(p.got, 0) as got,
--cost     coalesce(p.got_cost, 0) as got_cost,
         coalesce(p.next_priority, h.asked_priority) as next_priority,
         case when h.allowed is null then '{}' else h.still || coalesce(p.job_ids, '{}') end as new_holders,
         m.has_moved, p.last_at, p.job_ids[p.got] as last_id,
         h.place is null or p.got > 0 or h.mask <> h.known_mask or h.since <= h.known_at as has_changed,
         case
           when h.rests_until > clock.now then h.rests_until
           when h.started + coalesce(p.got, 0) >= h.rate
           then 'epoch'::timestamptz + (coalesce(h.ats[1], clock.us) + h.period_ms * 1000) * interval '1 microsecond'
           when h.busy + coalesce(p.got, 0) >= h.allowed then null
--cost       when h.charged + p.got_cost + p.next_cost > h.cost_rate then least({cost_next}, {cost_urgent})
--cost       when h.busy_cost + p.got_cost + p.next_cost > h.cost_allowed
--cost       then least({cost_urgent}, case when not :allow_crashed::boolean then clock.now + interval '250 ms' end)
           when p.is_newer then null
           when p.is_suspected and p.seen - p.got = 1 then clock.now + interval '250 ms'
           when p.got < p.chosen then clock.now + interval '50 ms'
           when :batch::integer is not null and h.room > 0 and p.id is null then h.at
           when h.ready_us > clock.us and coalesce(p.got, 0) = h.room
           then 'epoch'::timestamptz + h.ready_us * interval '1 microsecond'
           when p.next_at > clock.now and :ordered::boolean then p.next_at
           when p.seen > p.got then case when p.got > 0 then clock.now else h.at end
           -- What only a worker without other crashed jobs may take was not polled. Nothing else waits before the next one that
           -- was seen, so the search meets few rows.
           else coalesce(
             case when not :allow_crashed::boolean and not :ordered::boolean then (
               select least(p.next_at, greatest(min(x.gate_at), clock.now + interval '250 ms'))
                 from unnest('{0,1,2,3,4,5,6,7,8,9}'::smallint[]) level(priority)
                cross join lateral (
                  select w.gate_at from holdfast.queue w
                   where w.gate = h.id and w.priority = level.priority and w.token is null
                     and (w.gate_at, w.job_id) > (h.front_at, h.front_id) and w.gate_at <= coalesce(p.next_at, 'infinity') and w.crashes > 0
                     and h.mask & (1 << level.priority) <> 0
                   order by w.gate_at, w.job_id limit 1) x
               having count(*) > 0) end,
             case
               when p.next_at > clock.now then p.next_at
               when :batch::integer is not null then (
                 select min(x.gate_at)
                   from unnest('{0,1,2,3,4,5,6,7,8,9}'::smallint[]) level(priority)
                  cross join lateral (
                    select w.gate_at from holdfast.queue w
                     where w.gate = h.id and w.priority = level.priority and w.token is null and w.gate_at > clock.now
                       and h.mask & (1 << level.priority) <> 0
                     order by w.gate_at, w.job_id limit 1) x)
             end)
         end as again
    from (held h full join outcome_of p on p.id = h.id)
   cross join clock
   -- What was passed over must not be forgotten: the front moves only where all before it was taken, at one priority.
   cross join lateral (
     select coalesce(p.got > 0 and p.got = p.last_card and h.mask & (h.mask - 1) = 0 and :allow_crashed::boolean
                     and (select version from newer) is null, false) as has_moved) m
  offset 0) j),
-- What keeps its place in the round keeps its signals.
over as (
  delete from holdfast.gate g
   where g.ctid = any (array (select place from judged where has_changed and place is not null))
      or g.ctid = any (array (select place from shared_state where place is not null and exists (select from got)))),
served as (
  insert into holdfast.gate (id, turn, mask, holders, spent_at, spent, front_at, front_id, keep_until, looked_at)
  select j.id, j.turn + 1, j.mask, j.new_holders, {partition_spend},
         case when j.has_moved then j.last_at else j.front_at end, case when j.has_moved then j.last_id else j.front_id end,
         clock.now + greatest(coalesce(j.period_ms, 0), 60000) * interval '1 ms',
         case when j.is_kept then j.looked_at else clock.now end
    from judged j cross join clock where j.has_changed),
shared_served as (
  insert into holdfast.gate (id, turn, holders, spent_at, spent, keep_until)
  select j.id, j.turn + 1, case when j.allowed is null then '{}' else j.still || j.job_ids end, {partition_spend},
         clock.now + greatest(coalesce(j.period_ms, 0), 60000) * interval '1 ms'
    from (
      select s.*, t.got, t.job_ids from shared_state s
       cross join (select count(*)::integer as got, coalesce(array_agg(job_id), '{}') as job_ids from got) t) j
   cross join clock
   where j.place is null or j.got > 0),
--cost {cost_written},
answered as (
  delete from holdfast.wakeup k
   where k.ctid = any (array (
     select c.place from called c where (c.gate in (select id from judged where not is_kept)) is true
     union all
     select unnest(places) from judged where not is_kept))),
repeated as (
  insert into holdfast.wakeup (type, priority, at, gate, version)
  -- The first of an ordered queue may be parked for as long as nobody wakes it.
  select :type, next_priority, again, id, null from judged where again < 'infinity' and not is_kept
  union all
  select :type, w.priority, greatest(w.gate_at, (select now from clock)), j.id, (select version from newer)
    from judged j
   cross join lateral (
     -- Where more are readable, another poll follows.
     select x.priority, x.gate_at from (
       select q.priority, q.gate_at, q.version from holdfast.queue q
        where q.gate = j.id and q.gate_at is not null and q.token is null order by q.priority, q.gate_at, q.job_id limit 1000) x
      where x.version > :reads::smallint order by x.gate_at limit 1) w
   where not j.is_kept and (select version from newer) is not null
     and (select k.gate from holdfast.wakeup k
           where k.gate = j.id and k.version > :reads::smallint and k.at <= greatest(w.gate_at, (select now from clock)) limit 1) is null),
asked_job as (
  select id, chain_id, chain_index, input, blockers, trace, key, version, {is_debounced} as debounced, holdfast.us(created_at) as created_us, context
    from holdfast.job j
   where id = any (array (select job_id from claimed))
  offset 0),
left_over as materialized (
  select c.priority, c.at, c.n from called c
   where (c.gate in (select id from judged where again is null or again > (select now from clock) or got > 0)) is not true),
summary as (
  select (select count(*) from called
--cost        where not (select is_waiting from shared_wait)
         ) as called,
         (select count(*) from asked
--cost        where not (select is_waiting from shared_wait)
         ) as gates,
         (select count(*) from left_over
--cost        where not (select is_waiting from shared_wait)
         ) + (select count(*) from judged where again <= (select now from clock) and got > 0) as more,
         (select room from shared_room
--cost        where not (select is_waiting from shared_wait) union all select 0 where (select is_waiting from shared_wait)
         ) as room,
         holdfast.us(least(
--cost       (select 'epoch'::timestamptz + opens_us * interval '1 microsecond' from shared_wait),
           (select min(again) from judged where again > (select now from clock)),
           (select min(case when s.rests_until > clock.now then s.rests_until
                            else 'epoch'::timestamptz + (coalesce(s.ats[1], clock.us) + s.period_ms * 1000) * interval '1 microsecond' end)
              from shared_state s cross join clock where s.room = 0 and (s.rests_until > clock.now or s.started >= s.rate)),
           (select min(k.at)
              from unnest(:priorities::smallint[]) p(priority)
             cross join lateral (
               select k.at from holdfast.wakeup k
                where k.type = :type and k.priority = p.priority and k.at > (select now from clock)
                  and (k.version > :reads::smallint) is not true
                order by k.at, k.n limit 1) k))) - (select us from clock) as next_us,
         (select json_agg(json_build_array(
             p.priority, coalesce(holdfast.us(f.at), holdfast.us(m.at), p.at), coalesce(f.n - 1, m.n, p.n)))::text
            from unnest(:priorities::smallint[], :mark_ats::bigint[], :mark_ns::bigint[]) p(priority, at, n)
            left join lateral (
              select l.at, l.n from left_over l where l.priority = p.priority order by l.at, l.n limit 1) f on true
            left join lateral (
              select c.at, c.n from called c where c.priority = p.priority order by c.at desc, c.n desc limit 1) m on true) as marks)
select s.called, s.gates, s.more, s.room, s.next_us, s.marks,
       c.job_id, c.token, c.type, c.priority, holdfast.us(c.gate_at), c.attempt, c.max_attempts, c.crashes, c.fence,
       a.chain_id, a.chain_index, a.input, a.blockers, a.trace, a.key, a.created_us, (select us from clock),
       a.version, a.debounced, c.gate, c.failing, c.awaited, c.steps, holdfast.us(c.expires_at), a.context
  from summary s left join (claimed c full join asked_job a on a.id = c.job_id) on true
 order by c.priority, c.gate_at, c.job_id;

-- name: limit_unqueued
-- Jobs of a limited type that wait in no partition: started by code that does not know of the limit, or by SQL.
select found.job_id::text, j.input, holdfast.us(found.available_at)
  from (
    select w.*
      from unnest('{0,1,2,3,4,5,6,7,8,9}'::smallint[]) level(priority)
     cross join lateral (
       select w.job_id, w.available_at from holdfast.queue w
        where w.type = :type and w.priority = level.priority and w.token is null and w.available_at < 'infinity'
          and w.gate_at is null and (w.version > :reads::smallint) is not true
        order by w.available_at, w.job_id
        limit 1000) w
     limit :limit::integer) found
 cross join lateral (select o.input from holdfast.job o where o.id = found.job_id offset 0) j;

-- name: limit_enqueue
-- Gives such jobs their places, unless they were claimed or moved since; an ordered queue has one priority.
with given as materialized (
  select array_agg(x.id) as ids, array_agg(x.gate) as gates, array_agg(x.available_at) as ats
    from json_to_recordset(:rows::json) as x(id uuid, gate text, available_at bigint)),
weighed as (
  update holdfast.job j set cost = x.cost
    from json_to_recordset(:rows::json) as x(id uuid, cost integer)
   where j.id = x.id and x.cost is not null),
free as (
  select q.job_id from holdfast.queue q
   where q.job_id = any (array (select unnest(ids) from given)) and q.token is null
     and holdfast.us(q.available_at) = (select g.ats[array_position(g.ids, q.job_id)] from given g)
   for update skip locked),
moved as (
  update holdfast.queue q
     set gate = (select g.gates[array_position(g.ids, q.job_id)] from given g), gate_at = q.available_at, available_at = null,
         ordered = :ordered::boolean, rests_until = case when :ordered::boolean then q.available_at end,
         priority = case when :ordered::boolean then 5 else q.priority end
   where q.job_id = any (array (select job_id from free))
  returning q.job_id, q.type, q.priority, q.gate, q.gate_at),
signalled as (
  insert into holdfast.wakeup (type, priority, at, gate, since)
  select type, priority, min(gate_at), gate, min(gate_at) from moved group by type, priority, gate)
select count(*) from moved;

-- name: limit_queued_types
-- Of these types, those with jobs in partitions that no live worker limits: as long as one does, the queues are its own.
select t.type
  from unnest(array (select json_array_elements_text(:types::json))) t(type)
 cross join lateral (
   select from holdfast.queue w where w.gate > t.type || '"' and w.gate < t.type || '$' order by w.gate limit 1) found
 where (select count(*) from holdfast.worker k
         where k.stopped_at is null and not k.draining and k.seen_at > holdfast.moment(:now::bigint) - k.live_ms * interval '1 ms'
           and k.limits::json -> t.type is not null) = 0;

-- name: limit_settings
select id, allowed, rate, period_ms, holdfast.us(rests_until), reason, changed_by, holdfast.us(changed_at)
  from holdfast.limit_setting
 where :type::text is null or id in (:type, '*' || :type) or (id > :type || '#' and id < :type || '$') or id = :type || '#'
 order by id
 limit :limit::integer;

-- name: limit_paused
select id, allowed, rate, period_ms, holdfast.us(rests_until), reason, changed_by, holdfast.us(changed_at)
  from holdfast.limit_setting
 where rests_until > holdfast.moment(:now::bigint)
 order by rests_until desc, id
 limit :limit::integer;

-- name: limit_set
-- What was set wins over the code. The partitions that it concerns are polled: some may have room now.
with put as (
  insert into holdfast.limit_setting as s (id, allowed, rate, period_ms, changed_by, changed_at)
  values (:id, :allowed::integer, :rate::integer, :period_ms::bigint, :by, holdfast.moment(:now::bigint))
  on conflict (id) do update
     set allowed = excluded.allowed, rate = excluded.rate, period_ms = excluded.period_ms,
         changed_by = excluded.changed_by, changed_at = excluded.changed_at),
signalled as (
  {limit_signalled})
select 1;

-- fragment: limit_signalled
-- Signals for all queues that a setting concerns.
insert into holdfast.wakeup (type, priority, at, gate, since)
  select split_part(g.id, '#', 1), level.priority, holdfast.moment(:now::bigint), g.id, null
    from (
      select n.id, bit_or(n.mask) as mask from holdfast.gate n
       where n.id = :id or (:id like '*%' and n.id > substr(:id, 2) || '#' and n.id < substr(:id, 2) || '$')
       group by n.id) g
    join unnest('{0,1,2,3,4,5,6,7,8,9}'::smallint[]) level(priority) on g.mask & (1 << level.priority) <> 0
   where g.id like '%#%'

-- name: limit_clear
-- Takes a partition, or every key of a type, back to the code's own numbers, and ends a pause.
with gone as (delete from holdfast.limit_setting where id = :id returning id),
signalled as (
  {limit_signalled})
select id from gone;

-- name: limit_rest
-- Lets nothing through a partition until then; 0 ends a pause.
with put as (
  insert into holdfast.limit_setting as s (id, rests_until, reason, changed_by, changed_at)
  values (:id, holdfast.moment(:now::bigint) + :ms::bigint * interval '1 ms', :reason, :by, holdfast.moment(:now::bigint))
  on conflict (id) do update
     set rests_until = excluded.rests_until, reason = excluded.reason, changed_by = excluded.changed_by, changed_at = excluded.changed_at),
signalled as (
  {limit_signalled})
select 1;

-- name: limit_page
-- The queues of a type by key, each with what it lets in and what waits; counts stop at :max_count.
with recursive key_queue as (
  (select w.gate from holdfast.queue w
    where w.gate > coalesce(:after, :type || '"') and w.gate < :type || '$' order by w.gate limit 1)
  union all
  select (select w.gate from holdfast.queue w where w.gate > l.gate and w.gate < :type || '$' order by w.gate limit 1)
    from key_queue l where l.gate is not null)
select l.gate, c.running, coalesce(g.started, 0), c.waiting, holdfast.us(c.oldest_at), holdfast.us(s.rests_until), s.reason,
       s.allowed, s.rate, s.period_ms
  from (select gate from key_queue where gate is not null limit :limit::integer) l
 cross join lateral (
   select (count(*) filter (where x.token is not null))::integer as running,
          (count(*) filter (where x.token is null and x.gate_at <= holdfast.moment(:now::bigint)))::integer as waiting,
          min(x.gate_at) filter (where x.token is null) as oldest_at
     from (
       select w.token, w.gate_at from holdfast.queue w
        where w.gate = l.gate order by w.priority, w.gate_at, w.job_id limit :max_count::integer) x) c
  left join lateral (
    select (select sum(x.n)::integer from unnest(n.spent_at, n.spent) x(at, n)
             where x.at > holdfast.us(holdfast.moment(:now::bigint)) - :period_ms::bigint * 1000) as started
      from holdfast.gate n where n.id = l.gate and n.turn > 0 order by n.turn desc limit 1) g on true
  left join lateral (select * from holdfast.limit_setting t where t.id = l.gate offset 0) s on true
 order by l.gate;

-- name: limit_shared
-- The partitions of whole types and shared names: how many run there, and how many started in the last period.
select n.id, h.busy, coalesce(w.started, 0), 0, null::bigint, holdfast.us(s.rests_until), s.reason, s.allowed, s.rate, s.period_ms
  from unnest(array (select json_array_elements_text(:ids::json))) x(id)
 cross join lateral (
   select g.id, g.holders, g.spent_at, g.spent from holdfast.gate g where g.id = x.id and g.turn > 0 order by g.turn desc limit 1) n
 cross join lateral (
   select count(*)::integer as busy from holdfast.queue q where q.job_id = any (n.holders) and q.token is not null) h
 cross join lateral (
   select sum(y.n)::integer as started from unnest(n.spent_at, n.spent) y(at, n)
    where y.at > holdfast.us(holdfast.moment(:now::bigint)) - :period_ms::bigint * 1000) w
  left join lateral (select * from holdfast.limit_setting t where t.id = n.id offset 0) s on true
 order by n.id;

-- name: limit_place
-- Where jobs wait: how many are before each, the next signal, and the failed job that holds its queue.
select q.job_id::text, q.gate, holdfast.us(q.gate_at), a.ahead, holdfast.us(k.at), f.job_id::text
  from holdfast.queue q
 cross join lateral (
   select count(*)::integer as ahead from (
     select from holdfast.queue w
      where w.gate = q.gate and w.token is null
        and (w.priority, w.gate_at, w.job_id) < (q.priority, q.gate_at, q.job_id)
      limit :max_count::integer) x) a
  left join lateral (
    select n.holders from holdfast.gate n where n.id = q.gate and n.turn > 0 order by n.turn desc limit 1) g on true
  left join lateral (
    select o.job_id from holdfast.outcome o where o.job_id = any (g.holders) and o.state = 'failed' limit 1) f on true
  left join lateral (
    select x.at from (
      select w.at, w.gate from holdfast.wakeup w
       where w.type = q.type and w.priority = q.priority order by w.at, w.n limit :max_count::integer) x
     where x.gate = q.gate order by x.at limit 1) k on true
 where q.job_id = any (array (select i::uuid from json_array_elements_text(:ids::json) i)) and q.gate is not null;

-- name: limit_states
-- Partitions, used or not: how many run there and the first few of them, the starts that a rate counts, and whether it is paused.
select x.id, coalesce(h.busy, 0), coalesce(h.ids, '[]')::text, coalesce(w.starts, '[]')::text, holdfast.us(s.rests_until), s.reason
  from unnest(array (select json_array_elements_text(:ids::json))) x(id)
  left join lateral (
    select g.holders, g.spent_at, g.spent from holdfast.gate g
     where g.id = x.id and g.turn > 0 order by g.turn desc limit 1) n on true
  left join lateral (
    select count(*)::integer as busy, json_agg(y.job_id order by y.place) filter (where y.place <= :few::integer) as ids
      from (
        select q.job_id, row_number() over (order by q.job_id) as place from holdfast.queue q
         where q.job_id = any (n.holders) and q.token is not null) y) h on true
  left join lateral (
    select json_agg(json_build_array(z.at, z.n) order by z.at) as starts from unnest(n.spent_at, n.spent) z(at, n)) w on true
  left join lateral (select * from holdfast.limit_setting t where t.id = x.id offset 0) s on true;

-- name: limit_held
-- Queues of ordered types that wait for a job that failed. The newest ids come as an array, because the planner expects few
-- rows of one whatever the statistics say, and keeps to the indexes.
select f.gate, f.job_id::text, holdfast.us(f.finished_at)
  from unnest(array (
    select o.job_id from holdfast.outcome o
     where o.state = 'failed'
     order by o.finished_at desc
     limit :limit::integer)) x(id)
 cross join lateral (select o.* from holdfast.outcome o where o.job_id = x.id offset 0) f
 where f.gate is not null and f.type = any (array (select json_array_elements_text(:types::json)))
   and (select w.job_id from holdfast.queue w
         where w.gate = f.gate order by w.priority, w.gate_at, w.job_id limit 1) is not null
 order by f.finished_at, f.job_id;

-- name: limit_sweep
-- A page of partitions, by id: those with nobody waiting, nobody let in and no start that still counts are removed. A transaction that is
-- polling one has it locked, and it stays; if it is needed again, a signal makes it again. With the first page go pauses that are
-- over, and with them the settings of keys of which nothing else was set.
with page as materialized (
  select n.id from holdfast.gate n where n.turn = 0 and n.id > :after order by n.id limit 1000),
idle as materialized (
  select a.id, g.place, g.holders
    from page a cross join lateral (
      select g.ctid as place, g.holders from holdfast.gate g
       where g.ctid = (select n.ctid from holdfast.gate n where n.id = a.id and n.turn > 0 order by n.turn desc limit 1)
         and g.keep_until < holdfast.moment(:now::bigint)
         for update skip locked) g),
empty as materialized (
  select i.id from idle i
   where (select w.job_id from holdfast.queue w
           where w.gate = i.id order by w.priority, w.gate_at, w.job_id limit 1) is null
     and (select q.job_id from holdfast.queue q where q.job_id = any (i.holders) and q.token is not null limit 1) is null
     and (select o.job_id from holdfast.outcome o where o.job_id = any (i.holders) and o.state = 'failed' limit 1) is null),
removed as (
  delete from holdfast.gate g where g.id = any (array (select id from empty)) returning g.turn),
past as (
  delete from holdfast.charge c
   where :after::text = '' and c.at < holdfast.us(holdfast.moment(:now::bigint)) - 31::bigint * 86400000000),
rested as (
  delete from holdfast.limit_setting s
   where s.allowed is null and s.rate is null and s.rests_until < holdfast.moment(:now::bigint) and :after::text = '')
select (select max(id) from page), (select count(*) from page), (select count(*) from removed where turn > 0);
