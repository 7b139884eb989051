-- The event log: what was published, for readers that go through it in order. An event is in one line, that of its key, and has its
-- place there. Each line draws its places from a sequence of its own: `nextval` locks the sequence until the transaction ends, which is
-- how a reader knows whether a missing place may still come. There are no cached places: they would be drawn out of turn.
create table holdfast.log (
  line          smallint not null,
  place         bigint not null,
  event         text collate "C" not null,
  key           text,
  data          text not null,
  headers       text,
  id            uuid not null,
  at            timestamptz not null,
  part          integer not null
) partition by list (part);
create index log_place on holdfast.log (line, place);

-- The parts of the log in time, each a partition. A publish takes the newest, so none ever fails because the next was not made in time;
-- and without a default partition, parts can be attached and detached beside open publishers.
create table holdfast.log_part (
  part          integer primary key,
  begins_at     timestamptz not null
);
create table holdfast.log_0 partition of holdfast.log for values in (0);
insert into holdfast.log_part (part, begins_at) values (0, statement_timestamp());

create sequence holdfast.log_line_0;
create sequence holdfast.log_line_1;
create sequence holdfast.log_line_2;
create sequence holdfast.log_line_3;
create sequence holdfast.log_line_4;
create sequence holdfast.log_line_5;
create sequence holdfast.log_line_6;
create sequence holdfast.log_line_7;
create sequence holdfast.log_line_8;
create sequence holdfast.log_line_9;
create sequence holdfast.log_line_10;
create sequence holdfast.log_line_11;
create sequence holdfast.log_line_12;
create sequence holdfast.log_line_13;
create sequence holdfast.log_line_14;
create sequence holdfast.log_line_15;

-- How many lines there are: of this database, not of the code of two processes.
alter table holdfast.identity add column log_lines smallint not null default 16;

-- Who reads the log: consumers of applications, and relays. `epoch` grows when a reader is set back.
create table holdfast.log_reader (
  name          text collate "C" primary key,
  kind          text not null,
  paused        boolean not null default false,
  epoch         bigint not null default 1,
  created_at    timestamptz not null,
  seen_at       timestamptz not null
);

-- Which events they read; a publish looks through all of it.
create table holdfast.log_pattern (
  reader        text collate "C" not null,
  pattern       text collate "C" not null,
  primary key (reader, pattern)
);

-- How far a reader is in each line, and the lease under which a process reads it. A position is changed under its token only.
create table holdfast.log_position (
  reader        text collate "C" not null,
  line          smallint not null,
  position      bigint not null,
  fence         bigint not null default 0,
  token         uuid,
  worker        text,
  expires_at    timestamptz,
  failures      integer not null default 0,
  retry_at      timestamptz,
  error         text,
  primary key (reader, line)
) with (fillfactor = 50);

-- The processes that run a reader, those without a line included: lines are shared out among them.
create table holdfast.log_member (
  reader        text collate "C" not null,
  worker        text collate "C" not null,
  expires_at    timestamptz not null,
  primary key (reader, worker)
);

-- Events that a reader could not take. One that failed waits for an operator, one that is held waits for an earlier event of its key,
-- and one that is due is taken by the process that reads its line.
create table holdfast.log_parked (
  reader        text collate "C" not null,
  line          smallint not null,
  place         bigint not null,
  state         text not null,
  event         text not null,
  key           text,
  data          text not null,
  headers       text,
  id            uuid not null,
  at            timestamptz not null,
  error         text,
  attempts      integer not null,
  parked_at     timestamptz not null,
  primary key (reader, line, place)
);
