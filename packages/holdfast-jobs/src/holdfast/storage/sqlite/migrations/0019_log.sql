-- The event log: what was published, for readers that go through it in order. An event is in one line, that of its key, and has its
-- place there. Writers come one after the other, so places have no gaps and none appears out of turn.
create table holdfast_log (
  line          integer not null,
  place         integer not null,
  event         text not null,
  key           text,
  data          text not null,
  headers       text,
  id            text not null,
  at            integer not null,
  primary key (line, place)
) without rowid;
create index holdfast_log_at on holdfast_log (at);

-- The last place of each line, which outlives its events; as many rows as there are lines.
create table holdfast_log_line (
  line          integer primary key,
  place         integer not null default 0
);
insert into holdfast_log_line (line)
with recursive n (line) as (select 0 union all select line + 1 from n where line < 15) select line from n;

-- Who reads the log: consumers of applications, and relays. `epoch` grows when a reader is set back.
create table holdfast_log_reader (
  name          text not null primary key,
  kind          text not null,
  paused        integer not null default 0,
  epoch         integer not null default 1,
  created_at    integer not null,
  seen_at       integer not null
) without rowid;

-- Which events they read; a publish looks through all of it.
create table holdfast_log_pattern (
  reader        text not null,
  pattern       text not null,
  primary key (reader, pattern)
) without rowid;

-- How far a reader is in each line, and the lease under which a process reads it. A position is changed under its token only.
create table holdfast_log_position (
  reader        text not null,
  line          integer not null,
  position      integer not null,
  fence         integer not null default 0,
  token         text,
  worker        text,
  expires_at    integer,
  failures      integer not null default 0,
  retry_at      integer,
  error         text,
  primary key (reader, line)
) without rowid;

-- The processes that run a reader, those without a line included: lines are shared out among them.
create table holdfast_log_member (
  reader        text not null,
  worker        text not null,
  expires_at    integer not null,
  primary key (reader, worker)
) without rowid;

-- Events that a reader could not take. One that failed waits for an operator, one that is held waits for an earlier event of its key,
-- and one that is due is taken by the process that reads its line.
create table holdfast_log_parked (
  reader        text not null,
  line          integer not null,
  place         integer not null,
  state         text not null check (state in ('failed', 'held', 'due')),
  event         text not null,
  key           text,
  data          text not null,
  headers       text,
  id            text not null,
  at            integer not null,
  error         text,
  attempts      integer not null,
  parked_at     integer not null,
  primary key (reader, line, place)
) without rowid;
