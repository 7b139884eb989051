-- What the bench reads from our tables and from the server while it measures.

-- name: sessions
select pid from pg_stat_activity where datname = current_database() and application_name like 'holdfast %';

-- name: all_sessions
select pid from pg_stat_activity
 where datname = current_database() and backend_type = 'client backend' and pid <> pg_backend_pid();

-- name: synchronous_standbys
select 1 from pg_stat_replication where sync_state in ('sync', 'quorum') limit 1;

-- name: dead_rows_sample
select coalesce(sum(n_dead_tup), 0)::bigint,
       coalesce(sum(pg_total_relation_size(relid)) filter (where relname in ('queue', 'lease')), 0)::bigint,
       -- How long the oldest job has been in the queue; ids grow with time. (Counts of live rows are estimates.)
       coalesce(extract(epoch from clock_timestamp() - (
         select available_at from holdfast.queue order by job_id limit 1)), 0)::float8
  from pg_stat_user_tables where schemaname = 'holdfast';

-- name: dead_rows_waits
-- Of an hour's jobs only the first and the last ones are joined with their outcomes.
with bounds as (
  select (select created_at from holdfast.job where created_at >= %(since)s order by id limit 1) as first,
         (select created_at from holdfast.job order by id desc limit 1) as last),
waited as (
  select j.created_at < b.first + %(window)s as is_first, j.created_at > b.last - %(window)s as is_last,
         extract(epoch from o.started_at - j.created_at) * 1000 as ms
    from bounds b, holdfast.job j join holdfast.outcome o on o.job_id = j.id
   where j.created_at >= %(since)s and (j.created_at < b.first + %(window)s or j.created_at > b.last - %(window)s))
select percentile_cont(0.5) within group (order by ms) filter (where is_first),
       percentile_cont(0.5) within group (order by ms) filter (where is_last)
  from waited;

-- name: settings
select name, current_setting(name) from unnest(%s::text[]) name;

-- name: wal_bytes
select pg_current_wal_insert_lsn() - '0/0'::pg_lsn;

-- name: span
select count(*), coalesce(extract(epoch from max(finished_at) - min(started_at)), 0)::float8
  from holdfast.outcome where finished_at >= %s and type = any (%s);

-- name: has_ended
select from holdfast.outcome where job_id = %s::uuid;

-- name: sqlite_span
select count(*), coalesce(max(finished_at) - min(started_at), 0) from holdfast_outcome
 where type in (select value from json_each(?));

-- name: sqlite_has_ended
select count(*) from holdfast_outcome where job_id = ?;

-- name: gate_rows
select count(*) from holdfast.gate;

-- name: server_us
select (extract(epoch from clock_timestamp()) * 1000000)::bigint;

-- name: output_of
select output from holdfast.outcome where job_id = %s::uuid;
