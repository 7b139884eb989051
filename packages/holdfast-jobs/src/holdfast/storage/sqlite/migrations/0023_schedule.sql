-- Schedules that are set at run time: what is started, when, and with which options. `next_at` is moved in the transaction that
-- starts the job of a slot, so that each slot starts one.
create table holdfast_schedule (
  name          text not null primary key,
  type          text not null,
  input         text not null,
  schedule      text not null,
  zone          text not null,
  missed        text not null,
  overlap       text not null check (overlap in ('start', 'skip')),
  jitter_ms     integer not null,
  priority      integer not null,
  max_attempts  integer,
  version       integer,
  sealed        integer not null,
  next_at       integer not null,
  created_at    integer not null,
  changed_at    integer not null,
  paused        integer not null default 0,
  paused_by     text,
  paused_at     integer,
  last_slot     integer,
  last_job      text,
  error         text
) without rowid;
create index holdfast_schedule_due on holdfast_schedule (type, next_at) where paused = 0;

-- The slots that were decided: what was started for one, or why nothing was.
create table holdfast_schedule_slot (
  schedule      text not null,
  slot          integer not null,
  state         text not null check (state in ('started', 'skipped', 'missed', 'refused')),
  requested     integer not null,
  job_id        text,
  error         text,
  decided_at    integer not null,
  primary key (schedule, slot)
) without rowid;
create index holdfast_schedule_slot_age on holdfast_schedule_slot (decided_at);
