-- The lines of inboxes that keep the order of keys: up to which message each was taken, as JSON, and the process that reads it.
-- `deaths` counts the processes that lost it since it moved last. After some, messages are taken one by one, and `tries` counts how often
-- the next one was begun.
create table holdfast.inbox_line (
  inbox         text collate "C" not null,
  line          text collate "C" not null,
  place         text,
  token         uuid,
  worker        text collate "C",
  expires_at    timestamptz,
  deaths        integer not null default 0,
  tries         integer not null default 0,
  primary key (inbox, line)
);

-- A parked message of such an inbox holds those behind it that have the same key; `turn` numbers them.
alter table holdfast.inbox_parked
  add column key text collate "C",
  add column turn bigint not null default 0;
create index inbox_parked_key on holdfast.inbox_parked (inbox, key, turn) where key is not null;
