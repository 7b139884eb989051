-- What a job costs under limits and rates that count costs; null is 1.
alter table holdfast.job add column cost integer;
alter table holdfast.job alter column cost set statistics 25;

-- What the attempt under way has said it spent; null as long as its cost stands.
alter table holdfast.queue add column spent integer;

-- What attempts cost of rates that count costs, in steps of their period; a step counts until all of it lies outside. `at` is the last
-- attempt of a step. Claims add under the lock of the gate; what an attempt settles is added to the step in which it began.
create table holdfast.charge (
  gate        text collate "C" not null,
  step        bigint not null,
  at          bigint not null,
  cost        bigint not null,
  primary key (gate, step)
) with (
  fillfactor = 50, vacuum_truncate = off,
  autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_cost_delay = 0
);
