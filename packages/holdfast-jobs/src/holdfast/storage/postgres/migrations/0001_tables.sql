-- Tables by how they change: `job` is written once, `queue` holds only what is live, `lease` says who holds what,
-- `outcome` is appended. No foreign keys between these four: they are written in one statement and cleaned in batches.
create schema if not exists holdfast;

create table holdfast.schema_version (
  version       integer primary key,
  name          text not null,
  checksum      text not null,
  oldest_code   integer not null,
  applied_at    timestamptz not null default now()
);

-- One row: which database this is. A restored copy under another name is recognised by it.
create table holdfast.identity (
  only_row      boolean primary key default true check (only_row),
  id            uuid not null,
  database_name text not null,
  paused        boolean not null default false,
  paused_by     text,
  paused_at     timestamptz,
  created_at    timestamptz not null default now()
);

create table holdfast.job (
  id            uuid primary key,
  chain_id      uuid not null,
  chain_index   integer not null,
  type          text not null,
  input         text not null,
  priority      smallint not null,
  blockers      integer not null,
  max_attempts  integer,
  planned_at    timestamptz,
  key           text,
  trace         text,
  created_at    timestamptz not null
);
-- At most one job per place in a chain: two continuations of one job cannot both commit.
create unique index job_chain on holdfast.job (chain_id, chain_index);
create index job_key on holdfast.job (key) where key is not null;

-- A claim updates only columns that are in no index and no predicate, so it is a HOT update in the free half of the page.
create table holdfast.queue (
  job_id        uuid primary key,
  type          text not null,
  priority      smallint not null,
  available_at  timestamptz not null,
  attempt       integer not null default 0,
  max_attempts  integer,
  crashes       integer not null default 0,
  fence         bigint not null default 0,
  token         uuid,
  awaited       boolean not null default false
) with (
  fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0,
  autovacuum_analyze_scale_factor = 0.05
);
create index queue_claim on holdfast.queue (type, priority, available_at, job_id);

-- One row per claim and lease class, renewed by token however many jobs it names. The policies travel with it,
-- so that a reaper needs no application code.
create table holdfast.lease (
  token           uuid primary key,
  worker          text not null,
  claimed_at      timestamptz not null,
  expires_at      timestamptz not null,
  lease_ms        integer not null,
  max_attempts    integer not null,
  backoff_base_ms integer not null,
  backoff_cap_ms  integer not null,
  job_ids         uuid[] not null
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);

create table holdfast.outcome (
  job_id        uuid primary key,
  type          text not null,
  state         text not null check (state in ('completed', 'failed', 'cancelled')),
  continued     boolean not null default false,
  output        text,
  error         text,
  fingerprint   text,
  attempts      integer not null,
  crashes       integer not null,
  fence         bigint not null,
  token         uuid,
  worker        text,
  started_at    timestamptz,
  finished_at   timestamptz not null
);
create index outcome_not_completed on holdfast.outcome (state, finished_at, job_id) where state in ('failed', 'cancelled');
create index outcome_not_completed_id on holdfast.outcome (job_id) where state in ('failed', 'cancelled');
create index outcome_finished on holdfast.outcome using brin (finished_at);

create table holdfast.attempt (
  job_id        uuid not null,
  fence         bigint not null,
  attempt       integer not null,
  kind          text not null,
  worker        text,
  started_at    timestamptz,
  ended_at      timestamptz not null,
  error         text,
  primary key (job_id, fence, attempt)
);

-- How far a running attempt says it is; shown only while the fence is that of the job.
create table holdfast.progress (
  job_id        uuid primary key,
  fence         bigint not null,
  fraction      double precision not null,
  note          text not null,
  at            timestamptz not null
) with (fillfactor = 50);

create table holdfast.blocker (
  job_id        uuid not null,
  position      integer not null,
  chain_id      uuid not null,
  on_failure    text not null default 'fail' check (on_failure in ('fail', 'wait', 'run')),
  open          boolean not null,
  primary key (job_id, position)
);
create index blocker_open on holdfast.blocker (chain_id, job_id) where open;
-- Whether a job still waits for anything is one look, however many chains it waited for.
create index blocker_waits on holdfast.blocker (job_id) where open;
create index blocker_chain on holdfast.blocker (chain_id);

create table holdfast.chain_key (
  type          text not null,
  key           text not null,
  chain_id      uuid not null,
  until         timestamptz,
  primary key (type, key)
);

create table holdfast.subscription (
  event         text not null,
  handler       text not null,
  created_at    timestamptz not null default now(),
  primary key (event, handler)
);

create table holdfast.type_setting (
  type          text primary key,
  paused        boolean not null default false,
  paused_by     text,
  paused_at     timestamptz,
  lease_ms      integer,
  timeout_ms    integer,
  concurrency   integer,
  max_attempts  integer,
  changed_at    timestamptz not null default now()
);

create table holdfast.worker (
  id            text primary key,
  name          text not null,
  host          text not null,
  pid           integer not null,
  version       text not null,
  slots         integer not null,
  types         text not null,
  started_at    timestamptz not null,
  seen_at       timestamptz not null,
  stopped_at    timestamptz,
  draining      boolean not null default false,
  counters      text not null,
  last_error    text
) with (fillfactor = 50);

create table holdfast.worker_runs (
  id            uuid primary key,
  worker_name   text not null,
  worker_id     text,
  slot          text,
  started_at    timestamptz not null,
  seen_at       timestamptz not null,
  finished_at   timestamptz,
  outcome       text,
  counters      text not null,
  error_message text
);
create index worker_runs_recent on holdfast.worker_runs (worker_name, started_at desc);

create table holdfast.cycle (
  name          text primary key,
  schedule      text not null,
  zone          text not null,
  singleton     boolean not null,
  missed        text not null,
  paused        boolean not null default false,
  paused_by     text,
  paused_at     timestamptz,
  last_slot     timestamptz,
  changed_at    timestamptz not null default now()
);

create table holdfast.cycle_slot (
  cycle         text not null,
  slot          text not null,
  due_at        timestamptz not null,
  token         uuid,
  run_id        uuid,
  runs          integer not null default 0,
  state         text not null check (state in ('pending', 'running', 'completed', 'failed')),
  expires_at    timestamptz,
  finished_at   timestamptz,
  primary key (cycle, slot)
);
create index cycle_slot_open on holdfast.cycle_slot (cycle) where state <> 'completed';

-- Appended counts: one row per write and type, folded together by retention. Totals are sums, never count(*).
create table holdfast.tally (
  at            timestamptz not null,
  type          text not null,
  started       integer not null default 0,
  completed     integer not null default 0,
  failed        integer not null default 0,
  cancelled     integer not null default 0,
  retried       integer not null default 0,
  reaped        integer not null default 0,
  removed       integer not null default 0
);

create table holdfast.audit (
  id            uuid primary key,
  at            timestamptz not null,
  actor         text not null,
  role          text not null,
  action        text not null,
  target        text not null,
  before        text,
  after         text,
  reason        text,
  request_id    text
);
create index audit_recent on holdfast.audit (at desc, id desc);

create table holdfast.api_token (
  id            uuid primary key,
  name          text not null,
  role          text not null,
  hash          text not null unique,
  created_at    timestamptz not null,
  expires_at    timestamptz,
  revoked_at    timestamptz,
  last_used_at  timestamptz
);

-- The clock of every statement: a given instant in tests, the database's own otherwise.
create function holdfast.moment(us bigint) returns timestamptz
  language sql stable parallel safe
  return coalesce(to_timestamp(us / 1000000.0), statement_timestamp());

create function holdfast.us(moment timestamptz) returns bigint
  language sql stable parallel safe
  return case when isfinite(moment) then (date_part('epoch', moment) * 1000000)::bigint end;

-- For people: one joined picture, with the lease columns under the names everybody knows.
create view holdfast.jobs as
select j.id, j.chain_id, j.chain_index, j.type,
       case
         when o.job_id is not null then o.state
         when q.token is not null then 'running'
         when q.available_at = 'infinity' then 'blocked'
         when q.job_id is not null then 'pending'
       end as state,
       j.priority, j.input, j.key, j.trace, j.created_at, j.planned_at, q.available_at,
       coalesce(q.attempt, o.attempts, 0) as attempt, coalesce(q.max_attempts, j.max_attempts) as max_attempts,
       coalesce(q.crashes, o.crashes, 0) as crashes, coalesce(q.fence, o.fence, 0) as fence,
       coalesce(l.worker, o.worker) as locked_by, l.expires_at as locked_until,
       o.output, o.error, o.fingerprint, coalesce(o.continued, false) as continued,
       coalesce(o.started_at, l.claimed_at) as started_at, o.finished_at
  from holdfast.job j
  left join holdfast.queue q on q.job_id = j.id
  left join holdfast.lease l on l.token = q.token
  left join holdfast.outcome o on o.job_id = j.id;

create view holdfast.outbox as
select id, type, input as payload, created_at, available_at, attempt as attempts, locked_by, locked_until,
       case state when 'running' then 'PROCESSING' when 'completed' then 'SENT' when 'failed' then 'FAILED'
                  when 'cancelled' then 'CANCELLED' else 'PENDING' end as status,
       error as last_error
  from holdfast.jobs;
