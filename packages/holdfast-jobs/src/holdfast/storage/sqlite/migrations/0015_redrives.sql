-- Redrives at a rate that are under way: while workers run, they take the next dead letters of each back into the queue.
create table holdfast_redrive (
  id            text primary key,
  spacing_us    integer not null,
  next_at       integer not null
) without rowid;

-- Their dead letters; one that was taken is kept until it starts, so that few wait at once.
create table holdfast_redrive_job (
  job_id        text primary key,
  redrive_id    text not null,
  type          text not null,
  taken         integer not null default 0
) without rowid;

create index holdfast_redrive_job_left on holdfast_redrive_job (redrive_id, taken, job_id);
