-- Redrives at a rate that are under way: while workers run, they take the next dead letters of each back into the queue.
create table holdfast.redrive (
  id            uuid primary key,
  spacing_us    bigint not null,
  next_at       timestamptz not null
);

-- Their dead letters; one that was taken is kept until it starts, so that few wait at once.
create table holdfast.redrive_job (
  job_id        uuid primary key,
  redrive_id    uuid not null,
  type          text not null,
  taken         boolean not null default false
);

create index redrive_job_left on holdfast.redrive_job (redrive_id, taken, job_id);
