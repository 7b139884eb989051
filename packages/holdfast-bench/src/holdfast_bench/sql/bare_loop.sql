-- The bare loop: one narrow table, claim with a token, fenced delete; no history, no input, no leases. Frozen.

-- name: bare_tables
drop schema if exists bare_loop cascade;
create schema bare_loop;
create table bare_loop.job (
  id uuid primary key, type text not null, available_at timestamptz not null default now(), token uuid)
  with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);
create index on bare_loop.job (available_at, id);

-- name: bare_start
insert into bare_loop.job (id, type) select unnest(%(ids)s::uuid[]), 'type';

-- name: bare_claim
update bare_loop.job set token = %(token)s
 where id = any (array (
   select id from bare_loop.job
    where (available_at, id) > (%(at)s::timestamptz, %(id)s) and token is null and available_at <= now()
    order by available_at, id limit %(limit)s for update skip locked))
returning available_at, id;

-- name: bare_complete
delete from bare_loop.job where id = any (%(ids)s) and token = %(token)s;
