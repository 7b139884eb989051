-- A type with `on_failed` has a function called in the transaction that fails its jobs for good. Which types have one is known to
-- whoever finds a failure; the job then waits, `failing`, for a worker that has the function.
create table holdfast.on_failed (
  type          text primary key
);

-- Why a job fails, and after how many attempts of its own. Kept until it is redriven or removed.
create table holdfast.failing (
  job_id        uuid primary key,
  attempt       integer not null,
  error         text,
  fingerprint   text
);
alter table holdfast.queue add column failing boolean;
