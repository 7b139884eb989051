-- Statements on the tables that are archived. What is written with a dollar sign is put in by `archive.table_access`, quoted.

-- name: sqlite_columns
select name, type, hidden in (2, 3), "notnull" or pk from pragma_table_xinfo(:table) where hidden in (0, 2, 3) order by cid;

-- name: sqlite_kind
select type from sqlite_master where name = :table;

-- name: sqlite_primary
select name from pragma_table_xinfo(:table) where pk > 0;

-- name: sqlite_unique
-- Whether some unique index has no column but those of the key.
select exists (
  select 1 from pragma_index_list(:table) l
   where l."unique" and not l.partial
     and not exists (
       select 1 from pragma_index_info(l.name) i
        where i.name is null or i.name not in (select value from json_each(:key))));

-- name: sqlite_sample
select typeof($at) from $table where $at is not null limit 1;

-- name: sqlite_first
select min($instant) from $table where $instant >= :start and $instant < :until and ($filter);

-- name: sqlite_count
select count(*) from $table where $instant >= :start and $instant < :until and ($filter);

-- name: sqlite_types
-- Which types the values of each column have.
select $types from $table where $instant >= :start and $instant < :until and ($filter);

-- name: sqlite_rows
select $columns from $table where $instant >= :start and $instant < :until and ($filter) order by $key;

-- name: sqlite_lookup
select $columns from $table where $match;

-- name: sqlite_delete
delete from $table where $match;

-- name: sqlite_insert
insert into $table ($columns) values ($given);

-- name: sqlite_moved_rows
select rowid from $source where $instant < :until and ($filter) order by $instant limit :limit;

-- name: sqlite_move_in
insert into $target ($columns) select $columns from $source where rowid in (select value from json_each(:rows));

-- name: sqlite_move_out
delete from $source where rowid in (select value from json_each(:rows));

-- fragment: ended_chains_sqlite
-- The chains whose last job ended in a span, as one of some states.
select t.chain_id
  from holdfast_outcome o join holdfast_job t on t.id = o.job_id
 where o.finished_at >= :start and o.finished_at < :until
   and not o.continued and o.state in (select value from json_each(:states))
   and not exists (select 1 from holdfast_job l where l.chain_id = t.chain_id and l.chain_index > t.chain_index)

-- name: sqlite_chains_first
select min(finished_at) from holdfast_outcome
 where finished_at >= :start and finished_at < :until and not continued
   and state in (select value from json_each(:states));

-- name: sqlite_chains_count
select count(*) from ({ended_chains_sqlite}) c;

-- name: sqlite_chains_types
select $types from holdfast_job j join $table t on t.$link = j.id
 where j.chain_id in ({ended_chains_sqlite});

-- name: sqlite_chains_rows
-- The rows of one table that belong to the chains, chain by chain.
select $columns from holdfast_job j join $table t on t.$link = j.id
 where j.chain_id in ({ended_chains_sqlite})
 order by j.chain_id, j.chain_index, $key;

-- name: sqlite_chains_lookup
select $columns from json_each(:chains) c cross join holdfast_job j on j.chain_id = c.value join $table t on t.$link = j.id
 order by j.chain_id, j.chain_index, $key;
