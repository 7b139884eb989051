-- Limits, rates, fairness and order over all processes. A gate is the state of one limit and key, its line the jobs that wait
-- there, a wakeup the note "look at this gate". A job that bears a token is the permit itself: there is no count that could leak.
-- A job in a line has its time in `gate_at`, and `available_at` lies at the end of time, so that nothing else sees it as due. Of
-- an ordered job `gate_at` is its place, which stays, and `rests_until` is when it may be tried again.
alter table holdfast_queue add column gate text;
alter table holdfast_queue add column gate_at integer;
alter table holdfast_queue add column rests_until integer;
create index holdfast_queue_gate on holdfast_queue (type, gate, priority, gate_at, job_id) where gate is not null;

-- Where a failed job waited, and its place if the line is ordered: a redrive puts it back there.
alter table holdfast_outcome add column gate text;
alter table holdfast_outcome add column gate_at integer;

-- `holders` is a JSON array of ids, `spent` one of [instant, number of starts]. A gate with nobody in
-- it goes after `keep_until`.
create table holdfast_gate (
  id          text not null primary key,
  mask        integer not null default 0,
  holders     text not null default '[]',
  spent       text not null default '[]',
  front_at    integer not null default -1,
  front_id    text not null default '',
  keep_until  integer not null default 0
) without rowid;

-- Appended by everything that adds, frees, moves or ends a job of a gate; taken away by the claim that looked.
create table holdfast_wakeup (
  n           integer primary key,
  type        text not null,
  priority    integer not null,
  at          integer not null,
  gate        text not null,
  since       integer
);
create index holdfast_wakeup_due on holdfast_wakeup (type, priority, at, n);

-- What was set at run time: for a gate by its id, for every key of a type under `*type`. Null is the code's own.
create table holdfast_limit_setting (
  id          text not null primary key,
  allowed     integer,
  rate        integer,
  period_ms   integer,
  rests_until integer,
  reason      text,
  changed_by  text,
  changed_at  integer not null
) without rowid;

-- What waits in a line is due at its time there.
drop view holdfast_job_state;
create view holdfast_job_state as
select j.id, j.chain_id, j.chain_index, j.type,
       case
         when o.job_id is not null then o.state
         when q.token is not null then 'running'
         when q.available_at = 9223372036854775807 then 'blocked'
         when q.job_id is not null then 'pending'
       end as state,
       j.priority, j.input, j.key, j.trace, j.created_at, j.planned_at,
       case when q.gate_at is null then nullif(q.available_at, 9223372036854775807)
            else max(q.gate_at, coalesce(q.rests_until, 0)) end as available_at,
       coalesce(q.attempt, o.attempts, 0) as attempt, coalesce(q.max_attempts, j.max_attempts) as max_attempts,
       coalesce(q.crashes, o.crashes, 0) as crashes, coalesce(q.fence, o.fence, 0) as fence,
       coalesce(l.worker, o.worker) as locked_by, l.expires_at as locked_until,
       o.output, o.error, o.fingerprint, coalesce(o.continued, 0) as continued,
       coalesce(o.started_at, l.claimed_at) as started_at, o.finished_at
  from holdfast_job j
  left join holdfast_queue q on q.job_id = j.id
  left join holdfast_lease l on l.token = q.token
  left join holdfast_outcome o on o.job_id = j.id;
