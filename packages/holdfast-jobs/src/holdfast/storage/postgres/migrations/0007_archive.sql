-- What was exported of which period, and where it is. Rows of a source are dropped only with the manifest that covers them.
-- Every change of a manifest that a process works on carries its token; a crashed one's is taken over after `expires_at`.
create table holdfast.archive_manifest (
  id               uuid primary key,
  source           text not null,
  period           text not null,
  part             integer not null,
  state            text not null check (state in ('pending', 'exporting', 'exported', 'verified', 'dropped', 'failed')),
  objects          text not null default '[]',
  items            bigint not null default 0,
  rows             bigint not null default 0,
  bytes            bigint not null default 0,
  dropped          bigint not null default 0,
  definition       text not null default '{}',
  token            uuid,
  expires_at       timestamptz,
  error            text,
  created_at       timestamptz not null,
  changed_at       timestamptz not null,
  exported_at      timestamptz,
  verified_at      timestamptz,
  drop_eligible_at timestamptz,
  dropped_at       timestamptz,
  restored_at      timestamptz,
  unique (source, period, part)
);
