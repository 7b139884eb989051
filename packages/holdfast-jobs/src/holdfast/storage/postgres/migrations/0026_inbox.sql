-- Inboxes: what other systems send, by webhook or through a broker.
create table holdfast.inbox (
  name          text collate "C" primary key,
  kind          text not null,
  source        text not null,
  created_at    timestamptz not null,
  seen_at       timestamptz not null
);

-- The messages that were received, so that one sent again is recognised: written in the transaction of the handler's rows.
create table holdfast.inbox_seen (
  inbox         text collate "C" not null,
  id            text collate "C" not null,
  expires_at    timestamptz not null,
  primary key (inbox, id)
);
create index inbox_seen_expiry on holdfast.inbox_seen (expires_at);

-- Messages that could not be taken. One that failed waits for an operator, one that is due is taken by a worker.
create table holdfast.inbox_parked (
  id            uuid primary key,
  inbox         text collate "C" not null,
  message_id    text not null,
  state         text not null,
  subject       text,
  body          text not null,
  headers       text not null,
  error         text,
  attempts      integer not null,
  received_at   timestamptz not null,
  parked_at     timestamptz not null
);
create index inbox_parked_inbox on holdfast.inbox_parked (inbox, id);

-- The processes that read an inbox's broker, and why one cannot at the moment.
create table holdfast.inbox_member (
  inbox         text collate "C" not null,
  worker        text collate "C" not null,
  expires_at    timestamptz not null,
  error         text,
  primary key (inbox, worker)
);
