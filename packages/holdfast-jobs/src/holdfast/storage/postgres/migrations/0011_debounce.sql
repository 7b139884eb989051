-- What a debounced job is asked for again with before it starts: appended, so that producers do not wait for one another. The
-- worker that starts the job makes the newest its input and removes the rest.
create table holdfast.revision (
  job_id        uuid not null,
  n             bigint generated always as identity,
  input         text not null,
  at            timestamptz not null,
  quiet_ms      bigint not null,
  latest_ms     bigint,
  primary key (job_id, n)
) with (autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0);
