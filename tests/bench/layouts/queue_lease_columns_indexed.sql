-- name: tables
create schema layout;
create table layout.job (
  id uuid primary key, chain_id uuid not null, chain_index int not null, type text not null, input text,
  priority smallint, planned_at timestamptz, key text, created_at timestamptz not null default now(), trace text);
create unique index on layout.job (chain_id, chain_index);
create table layout.queue (
  job_id uuid primary key, type text not null, priority smallint not null default 5,
  available_at timestamptz not null default now(), attempt int not null default 0, crashes int not null default 0,
  fence bigint not null default 0, token uuid, awaited bool not null default false, worker text, lease_expires_at timestamptz)
  with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);
create index on layout.queue (type, priority, available_at, job_id);
create index on layout.queue (lease_expires_at) where token is not null;
create table layout.outcome (
  job_id uuid primary key, type text, state text not null, output text, error text, fingerprint text,
  attempts int, crashes int, fence bigint, token uuid, started_at timestamptz,
  finished_at timestamptz not null default now());
create index on layout.outcome (type, finished_at, job_id) where state in ('failed', 'cancelled');

-- name: start
with written as (
  insert into layout.job (id, chain_id, chain_index, type, input)
  select i, i, 0, 'type', p from unnest(%(ids)s::uuid[], %(inputs)s::text[]) x (i, p)
  returning id, type)
insert into layout.queue (job_id, type) select id, type from written;

-- name: claim
with claimed as (
  update layout.queue q
     set attempt = attempt + 1, fence = fence + 1, token = %(token)s, worker = 'limit',
         lease_expires_at = now() + interval '60 s'
   where q.job_id = any (array (
     select job_id from layout.queue
      where type = 'type' and priority = 5 and (available_at, job_id) > (%(at)s::timestamptz, %(id)s)
        and available_at <= now() and token is null
      order by available_at, job_id limit %(limit)s for update skip locked))
  returning q.available_at, q.job_id, q.attempt, q.fence)
select c.available_at, c.job_id, j.input, c.attempt, c.fence from claimed c join layout.job j on j.id = c.job_id;

-- name: renew
update layout.queue set lease_expires_at = now() + interval '60 s'
 where job_id = any (%(ids)s) and token = any (%(tokens)s);

-- name: complete
with ended as (
  delete from layout.queue where job_id = any (%(ids)s::uuid[]) and token = %(token)s returning *)
insert into layout.outcome (job_id, type, state, output, attempts, crashes, fence, token, started_at)
select e.job_id, e.type, 'completed', x.o, e.attempt, e.crashes, e.fence, e.token, now()
  from ended e join unnest(%(ids)s::uuid[], %(outputs)s::text[]) x (i, o) on x.i = e.job_id;
