-- name: schema_version
select version, name, checksum, oldest_code from holdfast.schema_version order by version;

-- name: schema_record
insert into holdfast.schema_version (version, name, checksum, oldest_code)
values (:version::integer, :name, :checksum, :oldest_code::integer);

-- fragment: own_hosts
array (select json_array_elements_text(:hosts::json))

-- fragment: server
-- The server as it is now: its origin, its timeline, since when it runs, and the addresses by which it is reached from here.
select holdfast.system_id() as system_id, holdfast.timeline() as timeline, pg_postmaster_start_time() as started_at,
         {own_hosts} as hosts

-- name: identity_get
-- A server that was not restarted since it was recorded is the same one, whatever it is called here.
select i.id::text, i.database_name, current_database(), i.paused, i.paused_by, holdfast.us(i.paused_at),
       current_setting('synchronous_standby_names') <> '', i.system_id::text, s.system_id::text, i.environment, :environment,
       cardinality(s.hosts) = 0 or coalesce(cardinality(i.hosts), 0) = 0 or i.hosts && s.hosts or (i.started_at = s.started_at) is true,
       not has_column_privilege('holdfast.identity', 'hosts', 'update')
         or (i.hosts @> s.hosts and i.started_at = s.started_at and (s.timeline = 0 or s.timeline = i.timeline)
             and (s.system_id is null or i.system_id = s.system_id)) is true
  from holdfast.identity i cross join ({server}) s;

-- name: identity_put
insert into holdfast.identity (id, database_name, environment) values (:id::uuid, current_database(), :environment)
on conflict do nothing;

-- name: identity_adopt
-- On a server of another origin (an upgrade, a restored dump) timelines begin anew: the base puts its fences above those of the
-- last one, with room for promotions since that one was last seen.
update holdfast.identity i
   set id = :id::uuid, database_name = current_database(), environment = :environment, hosts = s.hosts,
       fence_base = i.fence_base + case when i.system_id <> s.system_id then i.timeline + 16 else 0 end,
       system_id = coalesce(s.system_id, i.system_id), timeline = s.timeline, started_at = s.started_at
  from ({server}) s
returning i.id::text;

-- name: identity_note_server
-- Adds the addresses of this process to the known ones. Replicas in containers have new names every time: the latest count.
update holdfast.identity i
   set hosts = (s.hosts || array (select h from unnest(i.hosts) h where h <> all (s.hosts)))[1:100],
       system_id = coalesce(s.system_id, i.system_id), timeline = case when s.timeline > 0 then s.timeline else i.timeline end,
       started_at = s.started_at
  from ({server}) s
returning i.id::text;

-- name: pause_all
update holdfast.identity set paused = :paused::boolean, paused_by = case when :paused::boolean then :by end,
       paused_at = case when :paused::boolean then holdfast.moment(:now::bigint) end
returning paused;

-- name: clock
select holdfast.us(clock_timestamp());

-- name: answer_confirm
-- A commit that was cut off while it waited for the standby can be read here and be gone after a failover. A message in the log
-- makes this transaction wait for the standby as well, and so for everything it has read.
select pg_logical_emit_message(true, 'holdfast', '') is not null
 where current_setting('synchronous_standby_names') <> '' and not pg_is_in_recovery();

-- name: hint_send
-- Hints of a transaction on a connection that does not tell us of its commit: they go with it or not at all.
select pg_notify(:channel, payload) from json_array_elements_text(:payloads::json) payload;
