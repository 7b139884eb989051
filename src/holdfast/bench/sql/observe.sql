-- What the bench reads from our tables and from the server while it measures.

-- name: sessions
select pid from pg_stat_activity where datname = current_database() and application_name like 'holdfast %';

-- name: dead_rows_sample
select coalesce(sum(n_dead_tup), 0)::bigint,
       coalesce(sum(pg_total_relation_size(relid)) filter (where relname in ('queue', 'lease')), 0)::bigint
  from pg_stat_user_tables where schemaname = 'holdfast';

-- name: dead_rows_waits
with produced as (select * from holdfast.job where created_at >= %(since)s),
bounds as (select min(created_at) as first, max(created_at) as last from produced),
waited as (
  select j.created_at, extract(epoch from o.started_at - j.created_at) * 1000 as ms
    from holdfast.outcome o join produced j on j.id = o.job_id)
select percentile_cont(0.5) within group (order by ms) filter (where created_at < first + %(window)s),
       percentile_cont(0.5) within group (order by ms) filter (where created_at > last - %(window)s)
  from waited, bounds;

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
