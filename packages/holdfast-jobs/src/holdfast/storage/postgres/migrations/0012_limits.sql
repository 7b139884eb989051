-- Limits, rates, fairness and order over the whole fleet. A gate is the state of one limit and key, its line the jobs that wait
-- there, a wakeup the note "look at this gate". A job that bears a token is the permit itself: there is no count that could leak.
-- A job in a line has its time in `gate_at`, and `available_at` lies at the end of time, so that nothing else sees it as due. Of
-- an ordered job `gate_at` is its place, which stays, and `rests_until` is when it may be tried again.
alter table holdfast.queue
  add column gate        text collate "C",
  add column gate_at     timestamptz,
  add column rests_until timestamptz;
create index queue_gate on holdfast.queue (type, gate, priority, gate_at, job_id) where gate is not null;

-- Where a failed job waited, and its place if the line is ordered: a redrive puts it back there.
alter table holdfast.outcome
  add column gate    text collate "C",
  add column gate_at timestamptz;

-- A row is never updated but replaced by its next turn: a claim whose snapshot is older than another's grant finds nothing to
-- lock. Turn 0 stays as long as the gate exists, so that no gate is made twice; it says nothing. A gate with nobody in it goes
-- after `keep_until`.
create table holdfast.gate (
  id          text collate "C" not null,
  turn        bigint not null,
  mask        integer not null default 0,
  holders     uuid[] not null default '{}',
  spent_at    bigint[] not null default '{}',
  spent       integer[] not null default '{}',
  front_at    timestamptz not null default '-infinity',
  front_id    uuid not null default '00000000-0000-0000-0000-000000000000',
  keep_until  timestamptz not null default '-infinity',
  primary key (id, turn)
) with (
  autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_cost_delay = 0,
  toast_tuple_target = 8160
);

-- Appended by everything that adds, frees, moves or ends a job of a gate; taken away by the claim that looked.
create table holdfast.wakeup (
  type        text not null,
  priority    smallint not null,
  at          timestamptz not null,
  n           bigint generated always as identity (cache 100),
  gate        text collate "C" not null,
  since       timestamptz
) with (autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_cost_delay = 0);
create index wakeup_due on holdfast.wakeup (type, priority, at, n);

-- What was set at run time: for a gate by its id, for every key of a type under `*type`. Null is the code's own.
create table holdfast.limit_setting (
  id          text collate "C" primary key,
  allowed     integer,
  rate        integer,
  period_ms   bigint,
  rests_until timestamptz,
  reason      text,
  changed_by  text,
  changed_at  timestamptz not null
);

-- What waits in a line is due at its time there.
create or replace view holdfast.jobs as
select j.id, j.chain_id, j.chain_index, j.type,
       case
         when o.job_id is not null then o.state
         when q.token is not null then 'running'
         when q.available_at = 'infinity' then 'blocked'
         when q.job_id is not null then 'pending'
       end as state,
       j.priority, j.input, j.key, j.trace, j.created_at, j.planned_at,
       case when q.gate_at is null then q.available_at else greatest(q.gate_at, q.rests_until) end as available_at,
       coalesce(q.attempt, o.attempts, 0) as attempt, coalesce(q.max_attempts, j.max_attempts) as max_attempts,
       coalesce(q.crashes, o.crashes, 0) as crashes, coalesce(q.fence, o.fence, 0) as fence,
       coalesce(l.worker, o.worker) as locked_by, l.expires_at as locked_until,
       o.output, o.error, o.fingerprint, coalesce(o.continued, false) as continued,
       coalesce(o.started_at, l.claimed_at) as started_at, o.finished_at
  from holdfast.job j
  left join holdfast.queue q on q.job_id = j.id
  left join holdfast.lease l on l.token = q.token
  left join holdfast.outcome o on o.job_id = j.id;
