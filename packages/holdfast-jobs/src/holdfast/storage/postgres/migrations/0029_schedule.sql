-- Schedules that are set at run time: what is started, when, and with which options. `next_at` is moved in the transaction that
-- starts the job of a slot, so that each slot starts one.
create table holdfast.schedule (
  name          text collate "C" primary key,
  type          text collate "C" not null,
  input         text not null,
  schedule      text not null,
  zone          text not null,
  missed        text not null,
  overlap       text not null,
  jitter_ms     bigint not null,
  priority      smallint not null,
  max_attempts  integer,
  version       integer,
  sealed        boolean not null,
  next_at       timestamptz not null,
  created_at    timestamptz not null,
  changed_at    timestamptz not null,
  paused        boolean not null default false,
  paused_by     text,
  paused_at     timestamptz,
  last_slot     timestamptz,
  last_job      uuid,
  error         text
);
create index schedule_due on holdfast.schedule (type, next_at) where not paused;

-- The slots that were decided: what was started for one, or why nothing was.
create table holdfast.schedule_slot (
  schedule      text collate "C" not null,
  slot          timestamptz not null,
  state         text not null,
  requested     boolean not null,
  job_id        uuid,
  error         text,
  decided_at    timestamptz not null,
  primary key (schedule, slot)
);
create index schedule_slot_age on holdfast.schedule_slot (decided_at);
