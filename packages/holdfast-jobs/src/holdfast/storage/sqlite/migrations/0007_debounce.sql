-- What a debounced job is asked for again with before it starts. The worker that starts the job makes the newest its input and
-- removes the rest.
create table holdfast_revision (
  n             integer primary key,
  job_id        text not null,
  input         text not null,
  at            integer not null,
  quiet_ms      integer not null,
  latest_ms     integer
);
create index holdfast_revision_job on holdfast_revision (job_id, n);
