-- name: vitals
-- What the server says of itself, as one document. Other users' sessions show no details to a role that may not see them.
select json_build_object(
  'settings', (
    select json_object_agg(name, setting) from pg_settings
     where name in ('max_connections', 'superuser_reserved_connections', 'reserved_connections', 'synchronous_commit', 'fsync',
                    'full_page_writes', 'autovacuum', 'jit', 'jit_above_cost', 'server_version', 'server_version_num')),
  'role', current_user,
  'database', current_database(),
  'replica', pg_is_in_recovery(),
  'jit', current_setting('jit')::boolean and pg_jit_available(),
  -- Settings of this session that are not ours: those of the server, of the database and of the role.
  'switched_off', (
    select coalesce(json_agg(json_build_object('name', name, 'value', setting, 'source', source) order by name), '[]'::json)
      from pg_settings where starts_with(name, 'enable_') and boot_val = 'on' and setting = 'off'),
  -- Our own limits hide those from this session, but not from sessions of callers.
  'limits', (
    select coalesce(json_agg(json_build_object('name', name, 'value', value, 'source', source) order by name, source), '[]'::json)
      from (
        select split_part(given, '=', 1) as name, substr(given, strpos(given, '=') + 1) as value,
               case when s.setrole <> 0 and s.setdatabase <> 0 then 'database user' when s.setrole <> 0 then 'user' else 'database' end as source
          from pg_db_role_setting s cross join unnest(s.setconfig) given
         where s.setrole in (0, (select oid from pg_roles where rolname = current_user))
           and s.setdatabase in (0, (select oid from pg_database where datname = current_database()))
        union
        select name, setting || coalesce(unit, ''), source from pg_settings
         where source in ('configuration file', 'command line', 'environment variable')) found
     where name in ('statement_timeout', 'lock_timeout', 'transaction_timeout', 'idle_session_timeout', 'idle_in_transaction_session_timeout')),
  'connections', (select count(*) from pg_stat_activity where backend_type = 'client backend'),
  'own', (
    select coalesce(json_object_agg(purpose, n), '{}'::json) from (
      select substr(application_name, 10) as purpose, count(*) as n from pg_stat_activity
       where application_name like 'holdfast %' and datname = current_database() group by 1) x),
  'oldest', (
    select json_build_object('pid', pid, 'who', case when application_name <> '' then application_name else usename end, 'state', coalesce(state, 'hidden'),
                             'seconds', extract(epoch from clock_timestamp() - xact_start)::bigint)
      from pg_stat_activity
     where xact_start is not null and pid <> pg_backend_pid() and backend_type = 'client backend'
       and (backend_xid is not null or backend_xmin is not null)
     order by xact_start limit 1),
  'prepared', (select count(*) from pg_prepared_xacts where prepared < clock_timestamp() - interval '5 minutes'),
  'replication_slots', (
    select coalesce(json_agg(slot_name), '[]'::json) from pg_replication_slots where not active and (xmin is not null or catalog_xmin is not null)),
  'tables', (
    select coalesce(json_agg(json_build_object(
             'name', s.relname, 'live', s.n_live_tup, 'dead', s.n_dead_tup, 'bytes', pg_total_relation_size(s.relid),
             -- An option is stored as it was written, and there are many words for no.
             'autovacuum', not exists (
               select from pg_options_to_table(c.reloptions) o where o.option_name = 'autovacuum_enabled' and not o.option_value::boolean),
             'options', coalesce(to_json(c.reloptions), '[]'::json)) order by s.relname), '[]'::json)
      from pg_stat_user_tables s join pg_class c on c.oid = s.relid
     where c.relkind = 'r' and c.relnamespace = (select relnamespace from pg_class where oid = 'holdfast.queue'::regclass)),
  'indexes', (
    select coalesce(json_agg(c.relname order by c.relname), '[]'::json)
      from pg_index i join pg_class c on c.oid = i.indexrelid
     where i.indisvalid and c.relnamespace = (select relnamespace from pg_class where oid = 'holdfast.queue'::regclass)),
  'timeline', holdfast.timeline(),
  'may_vacuum', (
    select case when current_setting('server_version_num')::integer >= 170000 then has_table_privilege(c.oid, 'maintain')
                else pg_has_role(c.relowner, 'usage') end
      from pg_class c where c.oid = 'holdfast.queue'::regclass)
)::text;

-- name: dead_rows
-- How many dead rows the tables of short-lived rows hold, and whether this role may vacuum them.
select coalesce(sum(pg_stat_get_dead_tuples(c.oid)), 0)::bigint,
       bool_and(case when current_setting('server_version_num')::integer >= 170000 then has_table_privilege(c.oid, 'maintain')
                     else pg_has_role(c.relowner, 'usage') end)
  from pg_class c
 where c.oid in ('holdfast.queue'::regclass, 'holdfast.lease'::regclass, 'holdfast.tally'::regclass, 'holdfast.gate'::regclass,
                 'holdfast.wakeup'::regclass, 'holdfast.charge'::regclass);

-- name: sweep
-- Removes dead rows at once instead of at the server's next round. A table that is already being vacuumed is left alone,
-- and none is made shorter, which would need a lock that keeps claims out.
vacuum (skip_locked, index_cleanup on, truncate off, parallel 0)
  holdfast.queue, holdfast.lease, holdfast.tally, holdfast.gate, holdfast.wakeup, holdfast.charge;

-- name: privileges
-- What roles other than the owner were granted, by role and by table or `table.column`.
with granted as (
  select c.relname::text as object, c.relowner, acl.grantee, lower(acl.privilege_type) as privilege
    from pg_class c cross join aclexplode(c.relacl) acl
   where c.relnamespace = (select relnamespace from pg_class where oid = 'holdfast.queue'::regclass) and c.relkind in ('r', 'v', 'p', 'S')
  union all
  select c.relname || '.' || a.attname, c.relowner, acl.grantee, lower(acl.privilege_type)
    from pg_class c join pg_attribute a on a.attrelid = c.oid cross join aclexplode(a.attacl) acl
   where c.relnamespace = (select relnamespace from pg_class where oid = 'holdfast.queue'::regclass) and c.relkind in ('r', 'v', 'p', 'S')
), by_object as (
  select r.rolname, g.object, json_agg(g.privilege) as privileges
    from granted g join pg_roles r on r.oid = g.grantee where g.grantee <> g.relowner group by 1, 2
), by_role as (
  select rolname, json_object_agg(object, privileges) as objects from by_object group by 1
)
select coalesce(json_object_agg(rolname, objects), '{}'::json)::text from by_role;
