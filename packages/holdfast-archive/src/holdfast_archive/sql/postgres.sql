-- Statements on the tables that are archived. What is written with a dollar sign is put in by `archive.table_access`, quoted.

-- name: postgres_prepare
-- What the server writes is then the same everywhere, and reads back as what it was.
select set_config('TimeZone', 'UTC', true), set_config('DateStyle', 'ISO, YMD', true),
       set_config('IntervalStyle', 'postgres', true), set_config('bytea_output', 'hex', true),
       set_config('extra_float_digits', '1', true), set_config('lc_monetary', 'C', true),
       set_config('statement_timeout', '0', true);

-- name: postgres_columns
select a.attname::text, format_type(a.atttypid, a.atttypmod), case t.typtype when 'b' then t.typname::text else '' end,
       a.attgenerated <> '', a.attnotnull
  from pg_attribute a join pg_type t on t.oid = a.atttypid join pg_class c on c.oid = a.attrelid
 where c.oid = to_regclass(:table) and c.relkind in ('r', 'p') and a.attnum > 0 and not a.attisdropped
 order by a.attnum;

-- name: postgres_unique
-- Whether some unique index has no column but those of the key.
select exists (
  select from pg_index i
   where i.indrelid = to_regclass(:table) and i.indisunique and i.indisvalid and i.indpred is null and i.indexprs is null
     and not exists (
       select from unnest((i.indkey::int2[])[0: i.indnkeyatts - 1]) n
        join pg_attribute a on a.attrelid = i.indrelid and a.attnum = n
        where a.attname::text <> all (array (select json_array_elements_text(:key::json)))));

-- name: postgres_first
select $instant from (select min($at) as at from $table where $at >= :start::$at_type and $at < :until::$at_type and ($filter)) first;

-- name: postgres_count
select count(*) from $table where $at >= :start::$at_type and $at < :until::$at_type and ($filter);

-- name: postgres_rows
select $columns from $table where $at >= :start::$at_type and $at < :until::$at_type and ($filter) order by $key;

-- name: postgres_lookup
select $columns from $table where ($key) in (select $given from json_array_elements(:keys::json) k) $range;

-- name: postgres_lock
select $columns from $table where ($key) in (select $given from json_array_elements(:keys::json) k) $range for update;

-- name: postgres_delete
delete from $table where ($key) in (select $given from json_array_elements(:keys::json) k) $range;

-- name: postgres_copy
copy $table ($columns) from stdin;

-- name: postgres_move
-- One statement: a row is in one of the tables, whatever happens. What others hold is left for the next step.
with old as (
  select ctid, tableoid from $source where $at < :until::$at_type and ($filter) order by $at limit :limit::integer for update skip locked),
moved as (
  delete from $source t using old where t.ctid = old.ctid and t.tableoid = old.tableoid returning $returned)
insert into $target ($columns) select $columns from moved;

-- name: postgres_chains_analyze
-- Tables that a drop has emptied are empty to the planner until the server looks at them again: it would compare every chain with all
-- others. Where another session is at it, or the tables are not ours, they stay as they are.
analyze (skip_locked) holdfast.job, holdfast.outcome, holdfast.attempt, holdfast.blocker, holdfast.progress, holdfast.step;

-- fragment: ended_chains
-- The chains whose last job ended in a span, as one of some states.
select t.chain_id
  from holdfast.outcome o join holdfast.job t on t.id = o.job_id
 where o.finished_at >= to_timestamp(:start::bigint / 1000000.0) and o.finished_at < to_timestamp(:until::bigint / 1000000.0)
   and not o.continued and o.state = any (array (select json_array_elements_text(:states::json)))
   and not exists (select from holdfast.job l where l.chain_id = t.chain_id and l.chain_index > t.chain_index)

-- name: postgres_chains_first
select holdfast.us(min(finished_at)) from holdfast.outcome
 where finished_at >= to_timestamp(:start::bigint / 1000000.0) and finished_at < to_timestamp(:until::bigint / 1000000.0)
   and not continued and state = any (array (select json_array_elements_text(:states::json)));

-- name: postgres_chains_count
select count(*) from ({ended_chains}) c;

-- name: postgres_chains_rows
-- The rows of one table that belong to the chains, chain by chain.
select $columns from holdfast.job j join $table t on t.$link = j.id
 where j.chain_id in ({ended_chains})
 order by j.chain_id, j.chain_index, $key;

-- name: postgres_chains_lookup
select $columns from holdfast.job j join $table t on t.$link = j.id
 where j.chain_id = any (array (select c::uuid from json_array_elements_text(:chains::json) c))
 order by j.chain_id, j.chain_index, $key;
