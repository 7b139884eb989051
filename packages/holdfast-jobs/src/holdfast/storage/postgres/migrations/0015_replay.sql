-- Up to which event a new subscription was given earlier ones; null when that is over. And how long its events are kept.
alter table holdfast.subscription
  add column replay_after uuid,
  add column keep_ms bigint;
