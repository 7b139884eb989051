-- The lines of inboxes that keep the order of keys: up to which message each was taken, as JSON, and the process that reads it.
-- `deaths` counts the processes that lost it since it moved last. After some, messages are taken one by one, and `tries` counts how often
-- the next one was begun.
create table holdfast_inbox_line (
  inbox         text not null,
  line          text not null,
  place         text,
  token         text,
  worker        text,
  expires_at    integer,
  deaths        integer not null default 0,
  tries         integer not null default 0,
  primary key (inbox, line)
) without rowid;

-- A parked message of such an inbox holds those behind it that have the same key; `turn` numbers them.
alter table holdfast_inbox_parked add column key text;
alter table holdfast_inbox_parked add column turn integer not null default 0;
create index holdfast_inbox_parked_key on holdfast_inbox_parked (inbox, key, turn) where key is not null;
