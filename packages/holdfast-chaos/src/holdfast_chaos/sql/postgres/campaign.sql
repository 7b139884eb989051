-- name: effects_create
-- What handlers write in the transaction that completes their job. Nothing keeps a second row out: it would hide what is looked for.
create table holdfast.chaos_effect (
  job_id  uuid not null,
  fence   bigint not null,
  at      timestamptz not null default clock_timestamp()
);

-- name: effect_add
insert into holdfast.chaos_effect (job_id, fence) values (:job::uuid, :fence::bigint);

-- name: keys_create
-- The last number of each key: that of its last event, whose transaction holds the row's lock to its end.
create table holdfast.chaos_key (
  key  text primary key,
  n    bigint not null
);

-- name: key_next
insert into holdfast.chaos_key as k (key, n) values (:key, 1) on conflict (key) do update set n = k.n + 1 returning n;

-- name: taken_create
-- What the consumer took, in its order, written in the transaction that moves its position. Nothing keeps a second row out.
create table holdfast.chaos_taken (
  place  bigint generated always as identity,
  tag    text not null,
  key    text not null,
  n      bigint not null
);

-- name: taken_add
insert into holdfast.chaos_taken (tag, key, n) values (:tag, :key, :n::bigint);

-- name: taken
select tag, key, n from holdfast.chaos_taken order by place;

-- name: keys
select key, n from holdfast.chaos_key;

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
-- How many jobs have ended, and how many have not; how many events were taken, and how many are still to be. Asked all the time: the
-- ends are counted already, by the hundred thousand.
select (select coalesce(sum(completed + failed + cancelled), 0) from holdfast.tally), (select count(*) from holdfast.queue),
       t.n, (select coalesce(sum(k.n), 0) from holdfast.chaos_key k) - t.n
  from (select count(*) as n from holdfast.chaos_taken) t;

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
