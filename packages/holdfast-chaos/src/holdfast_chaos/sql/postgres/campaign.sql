-- name: effects_create
-- What handlers write in the transaction that completes their job. Nothing keeps a second row out: it would hide what is looked for.
create table holdfast.chaos_effect (
  job_id  uuid not null,
  fence   bigint not null,
  at      timestamptz not null default clock_timestamp()
);

-- name: effect_add
insert into holdfast.chaos_effect (job_id, fence) values (:job::uuid, :fence::bigint);

-- name: effects
select job_id::text, fence from holdfast.chaos_effect;

-- name: reaps
select job_id::text, fence, holdfast.us(ended_at) from holdfast.attempt where kind = 'reap';

-- name: jobs
select j.id::text, j.chain_id::text, j.chain_index, j.type, o.state, coalesce(o.fence, q.fence, 0)
  from holdfast.job j
  left join holdfast.outcome o on o.job_id = j.id
  left join holdfast.queue q on q.job_id = j.id;

-- name: progress
-- How many jobs have ended, and how many have not.
select (select count(*) from holdfast.outcome), (select count(*) from holdfast.queue);

-- name: schema_exists
select 1 from pg_catalog.pg_namespace where nspname = :schema;

-- name: end_sessions
-- Ends the sessions of these ports, and no one else's.
select count(pg_catalog.pg_terminate_backend(pid))
  from pg_catalog.pg_stat_activity
 where client_port = any (:ports::integer[]) and pid <> pg_catalog.pg_backend_pid();

-- name: standby_state
-- Whether a standby follows: asynchronously, or as one that commits wait for.
select 1 from pg_catalog.pg_stat_replication where state = 'streaming' and sync_state = any (:states::text[]);
