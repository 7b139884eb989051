-- Inboxes: what other systems send, by webhook or through a broker.
create table holdfast_inbox (
  name          text not null primary key,
  kind          text not null,
  source        text not null,
  created_at    integer not null,
  seen_at       integer not null
) without rowid;

-- The messages that were received, so that one sent again is recognised: written in the transaction of the handler's rows.
create table holdfast_inbox_seen (
  inbox         text not null,
  id            text not null,
  expires_at    integer not null,
  primary key (inbox, id)
) without rowid;
create index holdfast_inbox_seen_expiry on holdfast_inbox_seen (expires_at);

-- Messages that could not be taken. One that failed waits for an operator, one that is due is taken by a worker.
create table holdfast_inbox_parked (
  id            text not null primary key,
  inbox         text not null,
  message_id    text not null,
  state         text not null check (state in ('failed', 'due')),
  subject       text,
  body          text not null,
  headers       text not null,
  error         text,
  attempts      integer not null,
  received_at   integer not null,
  parked_at     integer not null
) without rowid;
create index holdfast_inbox_parked_inbox on holdfast_inbox_parked (inbox, id);

-- The processes that read an inbox's broker, and why one cannot at the moment.
create table holdfast_inbox_member (
  inbox         text not null,
  worker        text not null,
  expires_at    integer not null,
  error         text,
  primary key (inbox, worker)
) without rowid;
