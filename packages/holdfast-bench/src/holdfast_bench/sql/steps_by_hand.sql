-- The least that keeps the records of steps: rows inserted while the live row they belong to is locked and bears their token.
-- Frozen, as the limit loop is.

-- name: step_tables
drop schema if exists step_limit cascade;
create schema step_limit;
create table step_limit.queue (
  job_id uuid primary key, type text not null, priority smallint not null default 5,
  available_at timestamptz not null default now(), attempt int not null default 0, max_attempts int,
  crashes int not null default 0, fence bigint not null default 0, token uuid) with (fillfactor = 50);
create table step_limit.step (
  job_id uuid not null, name text not null, key text not null, kind smallint not null, output text, error text,
  arguments bigint, fence bigint not null, started_at timestamptz not null, ended_at timestamptz not null,
  primary key (job_id, name, key));
create table step_limit.bare (id uuid primary key, value text);

-- name: step_live
insert into step_limit.queue (job_id, type, token) select unnest(%s::uuid[]), 'steps', %s;

-- name: step_append
with given as materialized (
  select * from json_to_recordset(%s::json) as x(j uuid, t uuid, n text, k text, o text, a bigint, s bigint)),
live as materialized (
  select job_id, token, fence from step_limit.queue
   where job_id = any (array (select j from given)) order by job_id for share skip locked)
insert into step_limit.step (job_id, name, key, kind, output, arguments, fence, started_at, ended_at)
select g.j, g.n, g.k, 1, g.o, g.a, q.fence, to_timestamp(g.s / 1000000.0), clock_timestamp()
  from given g join live q on q.job_id = g.j and q.token = g.t
on conflict do nothing
returning job_id, name, key;

-- name: bare_insert
insert into step_limit.bare (id, value) values (%s, %s);

-- name: step_rows
select name, key, nth, state, output, arguments from holdfast.step where job_id = %s::uuid order by position;
