-- Since when a partition of the log is there for whoever begins a transaction: one that is older may not know it.
alter table holdfast.log_part add column attached_at timestamptz not null default statement_timestamp();
