-- What a job costs under limits and rates that count costs; null is 1.
alter table holdfast_job add column cost integer;

-- What the attempt under way has said it spent; null as long as its cost stands.
alter table holdfast_queue add column spent integer;

-- What attempts cost of rates that count costs, in steps of their period; a step counts until all of it lies outside. `at` is the last
-- attempt of a step. What an attempt settles is added to the step in which it began.
create table holdfast_charge (
  gate        text not null,
  step        integer not null,
  at          integer not null,
  cost        integer not null,
  primary key (gate, step)
) without rowid;
