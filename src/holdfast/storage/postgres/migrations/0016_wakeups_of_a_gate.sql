-- A look at a gate answers all its wakeups: many starts of a key are one turn. Those that a look answered lie before
-- `looked_at` and are not walked, whoever still sees them.
create index wakeup_gate on holdfast.wakeup (gate, at);
alter table holdfast.gate add column looked_at timestamptz not null default '-infinity';
