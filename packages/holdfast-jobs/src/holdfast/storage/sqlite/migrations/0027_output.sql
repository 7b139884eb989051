-- What handlers have emitted: batches of items, numbered along their chain by their last one. An attempt that emits begins an epoch of
-- its job, and what earlier epochs of the job said does not count any more. Items of a step of a durable function bear its id.
create table holdfast_output (
  chain_id      text not null,
  last          integer not null,
  first         integer not null,
  job_id        text not null,
  epoch         integer not null,
  step          text,
  data          text not null,
  at            integer not null,
  primary key (chain_id, last)
);
