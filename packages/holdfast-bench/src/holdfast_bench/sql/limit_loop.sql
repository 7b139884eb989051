-- The limit loop: the layout of docs/adr/0001-table-layout.md by hand. Frozen: it changes only with a new decision.

-- name: limit_tables
drop schema if exists limit_loop cascade;
create schema limit_loop;
create table limit_loop.job (
  id uuid primary key, chain_id uuid not null, chain_index int not null, type text not null, input text,
  priority smallint, planned_at timestamptz, key text, created_at timestamptz not null default now(), trace text);
create unique index on limit_loop.job (chain_id, chain_index);
create table limit_loop.queue (
  job_id uuid primary key, type text not null, priority smallint not null default 5,
  available_at timestamptz not null default now(), attempt int not null default 0, max_attempts int default 25,
  backoff_base int default 10000, backoff_cap int default 300000, crashes int not null default 0,
  fence bigint not null default 0, token uuid, awaited bool not null default false)
  with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);
create index on limit_loop.queue (type, priority, available_at, job_id);
create table limit_loop.lease (token uuid primary key, worker text, expires_at timestamptz, job_ids uuid[])
  with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01);
create table limit_loop.outcome (
  job_id uuid primary key, type text, state text not null, output text, error text, fingerprint text,
  attempts int, crashes int, fence bigint, token uuid, started_at timestamptz,
  finished_at timestamptz not null default now());
create index on limit_loop.outcome (type, finished_at, job_id) where state in ('failed', 'cancelled');

-- name: limit_start
with written as (
  insert into limit_loop.job (id, chain_id, chain_index, type, input)
  select i, i, 0, t, p from unnest(%(ids)s::uuid[], %(types)s::text[], %(inputs)s::text[]) x (i, t, p)
  returning id, type)
insert into limit_loop.queue (job_id, type) select id, type from written;

-- name: limit_claim
-- One probe per type, each from its own low-water mark; rows locked by others are skipped, never waited for.
with probe as (
  select * from unnest(%(types)s::text[], %(at)s::timestamptz[], %(ids)s::uuid[], %(room)s::int[])
    as m (type, at, id, room)),
claimed as (
  update limit_loop.queue q
     set attempt = attempt + 1, fence = greatest(fence + 1, %(ms)s), token = %(token)s
   where q.job_id = any (array (
     select job_id from (
       select found.* from probe p cross join lateral (
         select w.job_id, w.priority, w.available_at from limit_loop.queue w
          where w.type = p.type and w.priority = 5 and (w.available_at, w.job_id) > (p.at, p.id)
            and w.available_at <= now() and w.token is null
          order by w.available_at, w.job_id limit p.room for update skip locked) found
       order by found.priority, found.available_at, found.job_id limit %(limit)s) due))
  returning q.job_id, q.type, q.priority, q.available_at, q.attempt, q.fence, q.crashes),
leased as (
  insert into limit_loop.lease
  select %(token)s, 'limit', now() + interval '60 s', array_agg(job_id) from claimed having count(*) > 0)
select c.*, j.input from claimed c join limit_loop.job j on j.id = c.job_id;

-- name: limit_complete
-- Fenced by token; a row that another session has locked is skipped, and tried again.
with given as (select * from unnest(%(ids)s::uuid[], %(outputs)s::text[]) x (id, output)),
held as (
  select job_id from limit_loop.queue
   where job_id = any (%(ids)s::uuid[]) and token = %(token)s for update skip locked),
ended as (
  delete from limit_loop.queue q where q.job_id = any (array (select job_id from held))
  returning q.job_id, q.type, q.attempt, q.crashes, q.fence, q.token, q.awaited),
freed as (delete from limit_loop.lease where token = %(token)s),
kept as (
  insert into limit_loop.outcome (job_id, type, state, output, attempts, crashes, fence, token, started_at)
  select e.job_id, e.type, 'completed', g.output, e.attempt, e.crashes, e.fence, e.token, now()
    from ended e join given g on g.id = e.job_id)
select job_id, awaited from ended;

-- name: hand_listen
listen limit_loop;

-- name: hand_notify
select pg_notify('limit_loop', %s);
