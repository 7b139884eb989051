-- The limit loop on SQLite: the same protocol over one connection. Frozen.

-- name: sqlite_tables
create table job (
  id text primary key, chain_id text not null, chain_index integer not null, type text not null, input text,
  priority integer, planned_at integer, key text, created_at integer not null, trace text);
create unique index job_chain on job (chain_id, chain_index);
create table queue (
  job_id text primary key, type text not null, priority integer not null, available_at integer not null,
  attempt integer not null default 0, max_attempts integer, crashes integer not null default 0,
  fence integer not null default 0, token text, awaited integer not null default 0) without rowid;
create index queue_claim on queue (type, priority, available_at, job_id);
create table lease (token text primary key, worker text, expires_at integer, job_ids text);
create table outcome (
  job_id text primary key, type text, state text not null, output text, error text, fingerprint text, attempts integer,
  crashes integer, fence integer, token text, started_at integer, finished_at integer not null);

-- name: sqlite_start_job
insert into job values (?, ?, 0, 'noop', ?, 5, null, null, ?, null);

-- name: sqlite_start_queue
insert into queue (job_id, type, priority, available_at) values (?, 'noop', 5, ?);

-- name: sqlite_claim
update queue set attempt = attempt + 1, fence = max(fence + 1, ?1), token = ?2
 where job_id in (
   select job_id from queue
    where type = 'noop' and priority = 5 and (available_at, job_id) > (?3, ?4) and available_at <= ?1 and token is null
    order by available_at, job_id limit ?5)
returning available_at, job_id;

-- name: sqlite_inputs
select j.id, j.input, q.attempt from queue q join job j on j.id = q.job_id
 where q.job_id in (select value from json_each(?));

-- name: sqlite_lease
insert into lease values (?, 'limit', ?, ?);

-- name: sqlite_outcome
insert into outcome (job_id, type, state, output, attempts, crashes, fence, token, started_at, finished_at)
select job_id, type, 'completed', ?3, attempt, crashes, fence, token, ?4, ?4 from queue where job_id = ?1 and token = ?2;

-- name: sqlite_delete
delete from queue where job_id = ? and token = ?;

-- name: sqlite_free_lease
delete from lease where token = ?;
