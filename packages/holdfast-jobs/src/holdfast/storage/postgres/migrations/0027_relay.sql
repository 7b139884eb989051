-- Relays: readers whose events go to a broker's stream. `target` says which, for people.
alter table holdfast.log_reader add column target text;

-- `epoch` is that of the reader when the line was last set back or rebased; positions in a stream are compared within one epoch only.
-- `sent` is the last message that was appended, as JSON; `blocked` is why a line waits, and since when.
alter table holdfast.log_position
  add column epoch bigint not null default 1,
  add column sent text,
  add column blocked text,
  add column blocked_since timestamptz;
