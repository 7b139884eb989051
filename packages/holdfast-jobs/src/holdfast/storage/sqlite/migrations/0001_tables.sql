-- The tables of the PostgreSQL store, prefixed because the user's own tables live in the same file. Ids are texts of 36
-- characters, instants integer microseconds UTC, booleans 0 or 1; a blocked job is available at the largest integer.
-- Only `text` and `integer` are declared: other type names could meet a converter registered by the application.
-- Small rows found by their key have no rowid; rows with payloads have one, because their keys should stay compact.
-- The clock of every statement that is not given an instant. SQLite's has milliseconds.
create view holdfast_clock as
select cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000 as now;

create table holdfast_schema_version (
  version       integer primary key,
  name          text not null,
  checksum      text not null,
  oldest_code   integer not null,
  applied_at    integer not null
);

-- One row: which database this is. A copied file under another path is recognised by it.
create table holdfast_identity (
  only_row      integer primary key check (only_row = 1),
  id            text not null,
  database_name text not null,
  paused        integer not null default 0,
  paused_by     text,
  paused_at     integer,
  created_at    integer not null
);

create table holdfast_job (
  id            text not null primary key,
  chain_id      text not null,
  chain_index   integer not null,
  type          text not null,
  input         text not null,
  priority      integer not null,
  blockers      integer not null,
  max_attempts  integer,
  planned_at    integer,
  key           text,
  trace         text,
  created_at    integer not null
);
-- At most one job per place in a chain: two continuations of one job cannot both commit.
create unique index holdfast_job_chain on holdfast_job (chain_id, chain_index);
create index holdfast_job_key on holdfast_job (key) where key is not null;

-- A claim updates only columns that are in no index, so it touches one tree.
create table holdfast_queue (
  job_id        text not null primary key,
  type          text not null,
  priority      integer not null,
  available_at  integer not null,
  attempt       integer not null default 0,
  max_attempts  integer,
  crashes       integer not null default 0,
  fence         integer not null default 0,
  token         text,
  awaited       integer not null default 0
) without rowid;
create index holdfast_queue_claim on holdfast_queue (type, priority, available_at, job_id);

-- One row per claim and lease class, renewed by token however many jobs it names. The policies travel with it,
-- so that a reaper needs no application code. `job_ids` is a JSON array.
create table holdfast_lease (
  token           text not null primary key,
  worker          text not null,
  claimed_at      integer not null,
  expires_at      integer not null,
  lease_ms        integer not null,
  max_attempts    integer not null,
  backoff_base_ms integer not null,
  backoff_cap_ms  integer not null,
  job_ids         text not null
);

create table holdfast_outcome (
  job_id        text not null primary key,
  type          text not null,
  state         text not null check (state in ('completed', 'failed', 'cancelled')),
  continued     integer not null default 0,
  output        text,
  error         text,
  fingerprint   text,
  attempts      integer not null,
  crashes       integer not null,
  fence         integer not null,
  token         text,
  worker        text,
  started_at    integer,
  finished_at   integer not null
);
create index holdfast_outcome_not_completed on holdfast_outcome (state, finished_at, job_id)
  where state in ('failed', 'cancelled');
create index holdfast_outcome_not_completed_id on holdfast_outcome (job_id) where state in ('failed', 'cancelled');
create index holdfast_outcome_finished on holdfast_outcome (finished_at);

create table holdfast_attempt (
  job_id        text not null,
  fence         integer not null,
  attempt       integer not null,
  kind          text not null,
  worker        text,
  started_at    integer,
  ended_at      integer not null,
  error         text,
  primary key (job_id, fence, attempt)
) without rowid;

-- How far a running attempt says it is; shown only while the fence is that of the job.
create table holdfast_progress (
  job_id        text primary key,
  fence         integer not null,
  fraction      real not null,
  note          text not null,
  at            integer not null
) without rowid;

create table holdfast_blocker (
  job_id        text not null,
  position      integer not null,
  chain_id      text not null,
  on_failure    text not null default 'fail' check (on_failure in ('fail', 'wait', 'run')),
  open          integer not null,
  primary key (job_id, position)
) without rowid;
-- Whether a job still waits for anything is one look, however many chains it waited for.
create index holdfast_blocker_waits on holdfast_blocker (job_id) where open;
create index holdfast_blocker_chain on holdfast_blocker (chain_id, open, job_id);

create table holdfast_chain_key (
  type          text not null,
  key           text not null,
  chain_id      text not null,
  until         integer,
  primary key (type, key)
) without rowid;

create table holdfast_subscription (
  event         text not null,
  handler       text not null,
  created_at    integer not null,
  primary key (event, handler)
) without rowid;

create table holdfast_type_setting (
  type          text not null primary key,
  paused        integer not null default 0,
  paused_by     text,
  paused_at     integer,
  lease_ms      integer,
  timeout_ms    integer,
  concurrency   integer,
  max_attempts  integer,
  changed_at    integer not null
) without rowid;

create table holdfast_worker (
  id            text not null primary key,
  name          text not null,
  host          text not null,
  pid           integer not null,
  version       text not null,
  slots         integer not null,
  types         text not null,
  started_at    integer not null,
  seen_at       integer not null,
  stopped_at    integer,
  draining      integer not null default 0,
  counters      text not null,
  last_error    text
);

create table holdfast_worker_runs (
  id            text not null primary key,
  worker_name   text not null,
  worker_id     text,
  slot          text,
  started_at    integer not null,
  seen_at       integer not null,
  finished_at   integer,
  outcome       text,
  counters      text not null,
  error_message text
);
create index holdfast_worker_runs_recent on holdfast_worker_runs (worker_name, started_at desc);

create table holdfast_cycle (
  name          text not null primary key,
  schedule      text not null,
  zone          text not null,
  singleton     integer not null,
  missed        text not null,
  paused        integer not null default 0,
  paused_by     text,
  paused_at     integer,
  last_slot     integer,
  changed_at    integer not null
) without rowid;

create table holdfast_cycle_slot (
  cycle         text not null,
  slot          text not null,
  due_at        integer not null,
  token         text,
  run_id        text,
  runs          integer not null default 0,
  state         text not null check (state in ('pending', 'running', 'completed', 'failed')),
  expires_at    integer,
  finished_at   integer,
  primary key (cycle, slot)
) without rowid;
create index holdfast_cycle_slot_open on holdfast_cycle_slot (cycle) where state <> 'completed';

-- Appended counts: one row per write and type, folded together by retention. Totals are sums, never count(*).
create table holdfast_tally (
  id            integer primary key,
  at            integer not null,
  type          text not null,
  started       integer not null default 0,
  completed     integer not null default 0,
  failed        integer not null default 0,
  cancelled     integer not null default 0,
  retried       integer not null default 0,
  reaped        integer not null default 0,
  removed       integer not null default 0
);

create table holdfast_audit (
  id            text not null primary key,
  at            integer not null,
  actor         text not null,
  role          text not null,
  action        text not null,
  target        text not null,
  before        text,
  after         text,
  reason        text,
  request_id    text
);
create index holdfast_audit_recent on holdfast_audit (at desc, id desc);

create table holdfast_api_token (
  id            text not null primary key,
  name          text not null,
  role          text not null,
  hash          text not null unique,
  created_at    integer not null,
  expires_at    integer,
  revoked_at    integer,
  last_used_at  integer
);

-- The joined picture that statements read; a blocked job has no available_at.
create view holdfast_job_state as
select j.id, j.chain_id, j.chain_index, j.type,
       case
         when o.job_id is not null then o.state
         when q.token is not null then 'running'
         when q.available_at = 9223372036854775807 then 'blocked'
         when q.job_id is not null then 'pending'
       end as state,
       j.priority, j.input, j.key, j.trace, j.created_at, j.planned_at,
       nullif(q.available_at, 9223372036854775807) as available_at,
       coalesce(q.attempt, o.attempts, 0) as attempt, coalesce(q.max_attempts, j.max_attempts) as max_attempts,
       coalesce(q.crashes, o.crashes, 0) as crashes, coalesce(q.fence, o.fence, 0) as fence,
       coalesce(l.worker, o.worker) as locked_by, l.expires_at as locked_until,
       o.output, o.error, o.fingerprint, coalesce(o.continued, 0) as continued,
       coalesce(o.started_at, l.claimed_at) as started_at, o.finished_at
  from holdfast_job j
  left join holdfast_queue q on q.job_id = j.id
  left join holdfast_lease l on l.token = q.token
  left join holdfast_outcome o on o.job_id = j.id;

-- For people: the same with instants as RFC 3339, and the lease columns under the names everybody knows.
create view holdfast_jobs as
select id, chain_id, chain_index, type, state, priority, input, key, trace,
       strftime('%Y-%m-%dT%H:%M:%fZ', created_at / 1000000.0, 'unixepoch') as created_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', planned_at / 1000000.0, 'unixepoch') as planned_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', available_at / 1000000.0, 'unixepoch') as available_at,
       attempt, max_attempts, crashes, fence, locked_by,
       strftime('%Y-%m-%dT%H:%M:%fZ', locked_until / 1000000.0, 'unixepoch') as locked_until,
       output, error, fingerprint, continued,
       strftime('%Y-%m-%dT%H:%M:%fZ', started_at / 1000000.0, 'unixepoch') as started_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', finished_at / 1000000.0, 'unixepoch') as finished_at
  from holdfast_job_state;

create view holdfast_outbox as
select id, type, input as payload, created_at, available_at, attempt as attempts, locked_by, locked_until,
       case state when 'running' then 'PROCESSING' when 'completed' then 'SENT' when 'failed' then 'FAILED'
                  when 'cancelled' then 'CANCELLED' else 'PENDING' end as status,
       error as last_error
  from holdfast_jobs;
