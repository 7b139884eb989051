-- Up to which event a new subscription was given earlier ones; null when that is over. And how long its events are kept.
alter table holdfast_subscription add column replay_after text;
alter table holdfast_subscription add column keep_ms integer;
