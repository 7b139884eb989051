-- What a job is stands in a column of its own: whether it is debounced, and whether it keeps its place in an ordered line. Both are
-- empty where nobody has said so. What waits in a line has its time in `gate_at` and no `available_at`, so that nothing that looks
-- for due jobs sees it; of an ordered job `rests_until` is from when it may be tried.
alter table holdfast_job add column debounced integer;
update holdfast_job set debounced = 1
 where blockers < 0
   and id in (select job_id from holdfast_queue union all select job_id from holdfast_outcome where state = 'failed');

-- A column is made optional by making its table again. The rows are put aside meanwhile: renaming a table would try its views.
create table holdfast_queue_before as select * from holdfast_queue;
drop table holdfast_queue;
create table holdfast_queue (
  job_id        text not null primary key,
  type          text not null,
  priority      integer not null,
  available_at  integer,
  attempt       integer not null default 0,
  max_attempts  integer,
  crashes       integer not null default 0,
  fence         integer not null default 0,
  token         text,
  awaited       integer not null default 0,
  gate          text,
  gate_at       integer,
  ordered       integer,
  rests_until   integer
) without rowid;
insert into holdfast_queue
  (job_id, type, priority, available_at, attempt, max_attempts, crashes, fence, token, awaited, gate, gate_at, ordered, rests_until)
select job_id, type, priority, case when gate_at is null then available_at end, attempt, max_attempts, crashes, fence, token, awaited,
       gate, gate_at, case when gate is not null then rests_until is not null end,
       case when rests_until is not null then max(rests_until, coalesce(gate_at, (select now from holdfast_clock))) end
  from holdfast_queue_before;
drop table holdfast_queue_before;
create index holdfast_queue_claim on holdfast_queue (type, priority, available_at, job_id);
create index holdfast_queue_gate on holdfast_queue (type, gate, priority, gate_at, job_id) where gate is not null;
