-- What the steps of durable functions left behind, and what they wait for. Records are appended; those of sleeps, waits and runs are
-- written open and changed once, when they end. Of a wait that a signal ended, `signal_id` says which.
create table holdfast.step (
  job_id        uuid not null,
  name          text collate "C" not null,
  key           text collate "C" not null,
  nth           integer not null,
  position      integer not null,
  -- One of StepKind and of StepState. No constraint says so: each would be read anew by every statement, 10 µs of a step.
  kind          text not null,
  state         text not null,
  output        text,
  error         text,
  arguments     bigint,
  undo          boolean not null,
  fence         bigint not null,
  started_at    timestamptz,
  finished_at   timestamptz,
  until         timestamptz,
  signal        text collate "C",
  signal_key    text collate "C",
  signal_id     uuid,
  primary key (job_id, name, key, nth)
);
create index step_open on holdfast.step (job_id) where state = 'open';
create index step_waiting on holdfast.step (signal, signal_key) where state = 'open' and kind = 'wait';
-- As with the rest of the history: a larger sample would keep dead rows of the queue for seconds.
alter table holdfast.step
  alter column job_id set statistics 25, alter column name set statistics 25, alter column key set statistics 25,
  alter column nth set statistics 25, alter column position set statistics 25, alter column kind set statistics 25,
  alter column state set statistics 25, alter column output set statistics 25, alter column error set statistics 25,
  alter column arguments set statistics 25, alter column undo set statistics 25, alter column fence set statistics 25,
  alter column started_at set statistics 25, alter column finished_at set statistics 25, alter column until set statistics 25,
  alter column signal set statistics 25, alter column signal_key set statistics 25, alter column signal_id set statistics 25;

-- Appended by anybody's transaction, which reads and locks nothing. A fresh one is not routed yet; one that is no broadcast is taken
-- by one wait, and stays until its time is over, so that it is not sent twice.
create table holdfast.signal (
  id            uuid primary key,
  name          text collate "C" not null,
  key           text collate "C" not null,
  data          text not null,
  given_id      text,
  broadcast     boolean not null,
  fresh         boolean not null default true,
  taken_by      uuid,
  at            timestamptz not null,
  until         timestamptz not null
) with (autovacuum_vacuum_scale_factor = 0.05);
create unique index signal_given on holdfast.signal (name, key, given_id) where given_id is not null;
create index signal_untaken on holdfast.signal (name, key, id) where taken_by is null;
create index signal_fresh on holdfast.signal (id) where fresh;
create index signal_until on holdfast.signal using brin (until);

-- Of a live row: whether there are records of its job, and whether it is parked. `woken` is false while it is, and true if something
-- that it may wait for has happened while it ran, so that it is due again once it parks.
alter table holdfast.queue
  add column steps boolean,
  add column woken boolean;
-- Which call of other chains an edge belongs to: the position of its record.
alter table holdfast.blocker add column step integer;
