-- name: tables
create schema layout;
create table layout.job (
  id uuid primary key, chain_id uuid not null, chain_index int not null, type text not null, input text,
  priority smallint not null default 5, available_at timestamptz not null default now(), key text,
  created_at timestamptz not null default now(), trace text, attempt int not null default 0,
  crashes int not null default 0, fence bigint not null default 0, token uuid, worker text,
  lease_expires_at timestamptz, started_at timestamptz)
  with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);
create unique index on layout.job (chain_id, chain_index);
create index on layout.job (type, priority, available_at, id);
create table layout.history (
  like layout.job, state text not null, output text, error text, fingerprint text, finished_at timestamptz not null);
alter table layout.history add primary key (id);
create unique index on layout.history (chain_id, chain_index);
create index on layout.history (type, finished_at, id) where state in ('failed', 'cancelled');

-- name: start
insert into layout.job (id, chain_id, chain_index, type, input)
select i, i, 0, 'type', p from unnest(%(ids)s::uuid[], %(inputs)s::text[]) x (i, p);

-- name: claim
update layout.job j
   set attempt = attempt + 1, fence = fence + 1, token = %(token)s, worker = 'limit',
       lease_expires_at = now() + interval '60 s', started_at = now()
 where j.id = any (array (
   select id from layout.job
    where type = 'type' and priority = 5 and (available_at, id) > (%(at)s::timestamptz, %(id)s)
      and available_at <= now() and token is null
    order by available_at, id limit %(limit)s for update skip locked))
returning j.available_at, j.id, j.input, j.attempt, j.fence;

-- name: renew
update layout.job set lease_expires_at = now() + interval '60 s' where id = any (%(ids)s) and token = any (%(tokens)s);

-- name: complete
with ended as (
  delete from layout.job where id = any (%(ids)s::uuid[]) and token = %(token)s returning *)
insert into layout.history
select e.*, 'completed', x.o, null, null, now()
  from ended e join unnest(%(ids)s::uuid[], %(outputs)s::text[]) x (i, o) on x.i = e.id;
