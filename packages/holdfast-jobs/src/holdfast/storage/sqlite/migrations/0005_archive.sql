-- What was exported of which period, and where it is. Rows of a source are dropped only with the manifest that covers them.
-- Every change of a manifest that a process works on carries its token; a crashed one's is taken over after `expires_at`.
create table holdfast_archive_manifest (
  id               text not null primary key,
  source           text not null,
  period           text not null,
  part             integer not null,
  state            text not null check (state in ('pending', 'exporting', 'exported', 'verified', 'dropped', 'failed')),
  objects          text not null default '[]',
  items            integer not null default 0,
  rows             integer not null default 0,
  bytes            integer not null default 0,
  dropped          integer not null default 0,
  definition       text not null default '{}',
  token            text,
  expires_at       integer,
  error            text,
  created_at       integer not null,
  changed_at       integer not null,
  exported_at      integer,
  verified_at      integer,
  drop_eligible_at integer,
  dropped_at       integer,
  restored_at      integer,
  unique (source, period, part)
);
