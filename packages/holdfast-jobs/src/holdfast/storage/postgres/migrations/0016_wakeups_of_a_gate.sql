-- A look at a gate answers all its wakeups: many starts of a key are one turn. Those that a look answered lie before
-- `looked_at` and are not walked, whoever still sees them.
create index wakeup_gate on holdfast.wakeup (gate, at);
alter table holdfast.gate add column looked_at timestamptz not null default '-infinity';

-- A line is looked up by its gate alone, which names the type: with the type in front, a plan made at the wrong moment took the
-- index of the lines without limits and read all of it for every key.
create index queue_in_line on holdfast.queue (gate, priority, gate_at, job_id) where gate is not null;
drop index holdfast.queue_gate;
