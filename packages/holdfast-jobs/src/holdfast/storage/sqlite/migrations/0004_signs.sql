-- What a worker's sign says besides: for how long it counts as a sign of life, since when the worker beats again after a gap,
-- and the timings and leases it runs with. The defaults are those of workers that do not say it.
alter table holdfast_worker add column live_ms integer not null default 60000;
alter table holdfast_worker add column back_at integer;
alter table holdfast_worker add column timings text not null default '{}';
alter table holdfast_worker add column leases text not null default '{}';
