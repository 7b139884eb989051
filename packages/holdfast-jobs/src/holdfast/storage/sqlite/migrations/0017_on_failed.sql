-- A type with `on_failed` has a function called in the transaction that fails its jobs for good. Which types have one is known to
-- whoever finds a failure; the job then waits, `failing`, for a worker that has the function.
create table holdfast_on_failed (
  type          text not null primary key
) without rowid;

-- Why a job fails, and after how many attempts of its own. Kept until it is redriven or removed.
create table holdfast_failing (
  job_id        text not null primary key,
  attempt       integer not null,
  error         text,
  fingerprint   text
) without rowid;
alter table holdfast_queue add column failing integer;
