-- How long ended chains of a type are kept, where its code says so, and up to when such chains were removed.
create table holdfast_keep (
  type        text not null,
  state       text not null check (state in ('completed', 'failed', 'cancelled')),
  keep_ms     integer not null,
  swept_until integer,
  primary key (type, state)
);
