-- What the steps of durable functions left behind, and what they wait for. Records are appended; those of sleeps, waits and runs are
-- written open and changed once, when they end. Of a wait that a signal ended, `signal_id` says which.
create table holdfast_step (
  job_id        text not null,
  name          text not null,
  key           text not null,
  nth           integer not null,
  position      integer not null,
  kind          text not null check (kind in ('step', 'sleep', 'wait', 'run', 'cursor', 'undo', 'failure')),
  state         text not null check (state in ('open', 'done', 'failed', 'timed_out')),
  output        text,
  error         text,
  arguments     integer,
  undo          integer not null,
  fence         integer not null,
  started_at    integer,
  finished_at   integer,
  until         integer,
  signal        text,
  signal_key    text,
  signal_id     text,
  primary key (job_id, name, key, nth)
);
create index holdfast_step_open on holdfast_step (job_id) where state = 'open';
create index holdfast_step_waiting on holdfast_step (signal, signal_key) where state = 'open' and kind = 'wait';

-- Signals. One that is no broadcast is taken by one wait, and stays until its time is over, so that it is not sent twice. The
-- transaction that appends one wakes those that wait for it.
create table holdfast_signal (
  id            text not null primary key,
  name          text not null,
  key           text not null,
  data          text not null,
  given_id      text,
  broadcast     integer not null,
  taken_by      text,
  at            integer not null,
  until         integer not null
);
create unique index holdfast_signal_given on holdfast_signal (name, key, given_id) where given_id is not null;
create index holdfast_signal_untaken on holdfast_signal (name, key, id) where taken_by is null;
create index holdfast_signal_until on holdfast_signal (until);

-- Of a live row: whether there are records of its job, and whether it is parked. `woken` is 0 while it is, and 1 if something that it
-- may wait for has happened while it ran, so that it is due again once it parks.
alter table holdfast_queue add column steps integer;
alter table holdfast_queue add column woken integer;
-- Which call of other chains an edge belongs to: the position of its record.
alter table holdfast_blocker add column step integer;
