-- What handlers have emitted: batches of items, numbered along their chain by their last one. An attempt that emits begins an epoch of
-- its job, and what earlier epochs of the job said does not count any more. Items of a step of a durable function bear its id.
create table holdfast.output (
  chain_id      uuid not null,
  last          bigint not null,
  first         bigint not null,
  job_id        uuid not null,
  epoch         integer not null,
  step          text,
  data          text not null,
  at            timestamptz not null,
  primary key (chain_id, last)
);
