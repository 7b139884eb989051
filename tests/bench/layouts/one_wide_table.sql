-- name: tables
create schema layout;
create table layout.job (
  id uuid primary key, chain_id uuid not null, chain_index int not null, type text not null, input text,
  priority smallint not null default 5, available_at timestamptz not null default now(), key text,
  created_at timestamptz not null default now(), trace text, state text not null default 'pending',
  attempt int not null default 0, crashes int not null default 0, fence bigint not null default 0, token uuid,
  worker text, lease_expires_at timestamptz, output text, error text, fingerprint text, started_at timestamptz,
  finished_at timestamptz)
  with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);
create unique index on layout.job (chain_id, chain_index);
create index on layout.job (type, priority, available_at, id) where state = 'pending';
create index on layout.job (lease_expires_at) where state = 'running';
create index on layout.job (type, finished_at, id) where state in ('failed', 'cancelled');

-- name: start
insert into layout.job (id, chain_id, chain_index, type, input)
select i, i, 0, 'type', p from unnest(%(ids)s::uuid[], %(inputs)s::text[]) x (i, p);

-- name: claim
update layout.job j
   set state = 'running', attempt = attempt + 1, fence = fence + 1, token = %(token)s, worker = 'limit',
       lease_expires_at = now() + interval '60 s', started_at = now()
 where j.id = any (array (
   select id from layout.job
    where type = 'type' and priority = 5 and (available_at, id) > (%(at)s::timestamptz, %(id)s)
      and available_at <= now() and state = 'pending'
    order by available_at, id limit %(limit)s for update skip locked))
returning j.available_at, j.id, j.input, j.attempt, j.fence;

-- name: renew
update layout.job set lease_expires_at = now() + interval '60 s' where id = any (%(ids)s) and token = any (%(tokens)s);

-- name: complete
update layout.job j set state = 'completed', output = x.o, finished_at = now(), lease_expires_at = null
  from unnest(%(ids)s::uuid[], %(outputs)s::text[]) x (i, o)
 where j.id = x.i and j.token = %(token)s;
