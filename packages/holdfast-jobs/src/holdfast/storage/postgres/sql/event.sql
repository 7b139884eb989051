-- name: subscription_list
select event, handler from holdfast.subscription where event = any (array (select e from json_array_elements_text(:events::json) e))
 order by event, handler;

-- name: subscription_page
select event, handler, holdfast.us(created_at), replay_after::text, keep_ms
  from holdfast.subscription order by event, handler limit :limit::integer;

-- name: subscription_insert
insert into holdfast.subscription (event, handler, replay_after, keep_ms)
select event, handler, replay_after, keep_ms
  from json_to_recordset(:rows::json) as x(event text, handler text, replay_after uuid, keep_ms bigint)
on conflict do nothing
returning event, handler;

-- name: subscription_delete
delete from holdfast.subscription s
 using json_to_recordset(:rows::json) as x(event text, handler text)
 where s.event = x.event and s.handler = x.handler
returning s.event, s.handler;

-- name: subscription_keep
update holdfast.subscription s
   set keep_ms = x.keep_ms
  from json_to_recordset(:rows::json) as x(event text, handler text, keep_ms bigint)
 where s.event = x.event and s.handler = x.handler and coalesce(s.keep_ms, -1) <> coalesce(x.keep_ms, -1);

-- name: subscription_kept
select event, max(keep_ms) from holdfast.subscription where keep_ms is not null group by event;

-- name: subscription_replaying
select replay_after::text, holdfast.us(created_at)
  from holdfast.subscription
 where event = :event and handler = :handler and replay_after is not null
   for update skip locked;

-- name: subscription_replayed
update holdfast.subscription set replay_after = :after::uuid where event = :event and handler = :handler;

-- name: event_stored
-- A walk along the ids, which are the order of publishing; a bounded number is looked at, whatever there is between the events.
with looked as materialized (
  select j.id, j.type, j.chain_index, j.input, j.version, j.planned_at, j.context
    from holdfast.job j
   where j.id > :after::uuid and j.id < :until::uuid
   order by j.id
   limit :look::integer),
found as materialized (
  select id, type, input, version, planned_at, context from looked where split_part(type, '/', 1) = :event and chain_index = 0)
select id::text, type, input, version, holdfast.us(planned_at), context from found
union all
select id::text, type, null, null, null, null from (select id, type from looked order by id desc limit 1) last
 where not exists (select from found f where f.id = last.id)
 order by 1;

-- name: event_waiting
-- Events that were published before anybody subscribed: one pending row under the event's own name.
select q.job_id::text, j.type, j.input, j.priority, j.trace, holdfast.us(j.planned_at), j.version, j.context
  from holdfast.queue q join holdfast.job j on j.id = q.job_id
 where q.type = :event and q.token is null
 order by q.job_id
 limit :limit::integer
   for update of q skip locked;
