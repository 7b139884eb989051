-- name: schema_version
select version, name, checksum, oldest_code from holdfast.schema_version order by version;

-- name: schema_record
insert into holdfast.schema_version (version, name, checksum, oldest_code)
values (:version::integer, :name, :checksum, :oldest_code::integer);

-- name: identity_get
select id::text, database_name, current_database(), paused, paused_by, holdfast.us(paused_at),
       current_setting('synchronous_standby_names') <> ''
  from holdfast.identity;

-- name: identity_put
insert into holdfast.identity (id, database_name) values (:id::uuid, current_database()) on conflict do nothing;

-- name: identity_adopt
update holdfast.identity set id = :id::uuid, database_name = current_database() returning id::text;

-- name: identity_note_server
-- Remembers the server and its timeline. On a server of another origin (an upgrade, a restored dump) timelines begin anew:
-- the base puts its fences above those of the last one, with room for promotions since that one was last seen.
update holdfast.identity i
   set fence_base = i.fence_base + case when i.system_id <> s.system_id then i.timeline + 16 else 0 end,
       timeline = s.timeline, system_id = s.system_id
  from (select holdfast.system_id() as system_id, holdfast.timeline() as timeline) s
 where s.system_id is not null and (i.system_id, i.timeline) is distinct from (s.system_id, s.timeline)
returning i.fence_base;

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
