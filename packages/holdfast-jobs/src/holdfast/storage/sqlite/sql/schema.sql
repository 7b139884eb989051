-- fragment: now
-- The instant that a test gave, or the database's clock.
coalesce(:now, (select now from holdfast_clock))

-- name: schema_version
select version, name, checksum, oldest_code from holdfast_schema_version order by version;

-- name: schema_record
insert into holdfast_schema_version (version, name, checksum, oldest_code, applied_at)
values (:version, :name, :checksum, :oldest_code, (select now from holdfast_clock));

-- name: identity_get
-- The name of a database is its file's path; one in memory has none.
select i.id, i.database_name, coalesce(nullif(d.file, ''), ':memory:'), i.paused, i.paused_by, i.paused_at, false,
       null, null, i.environment, :environment, true, true
  from holdfast_identity i cross join pragma_database_list d on d.name = 'main';

-- name: identity_put
insert into holdfast_identity (only_row, id, database_name, environment, created_at)
select 1, :id, coalesce(nullif(file, ''), ':memory:'), :environment, (select now from holdfast_clock)
  from pragma_database_list where name = 'main'
on conflict do nothing;

-- name: identity_adopt
update holdfast_identity
   set id = :id, environment = :environment,
       database_name = (select coalesce(nullif(file, ''), ':memory:') from pragma_database_list where name = 'main')
returning id;

-- name: identity_note_server
-- A file has no server that could be replaced.
select 0 where 0;

-- name: pause_all
update holdfast_identity
   set paused = :paused, paused_by = case when :paused then :by end,
       paused_at = case when :paused then {now} end
returning paused;

-- name: clock
select now from holdfast_clock;

-- name: answer_confirm
-- What can be read from the file is in the file.
select 1 where 0;

-- name: hint_send
-- There is no channel to notify on: other processes watch the file itself.
select :channel, :payloads;
