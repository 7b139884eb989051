-- name: subscription_list
select event, handler from holdfast_subscription
 where event in (select value from json_each(:events))
 order by event, handler;

-- name: subscription_page
select event, handler, created_at, replay_after, keep_ms
  from holdfast_subscription order by event, handler limit :limit;

-- name: subscription_insert
insert into holdfast_subscription (event, handler, created_at, replay_after, keep_ms)
select json_extract(value, '$.event'), json_extract(value, '$.handler'), (select now from holdfast_clock),
       json_extract(value, '$.replay_after'), json_extract(value, '$.keep_ms')
  from json_each(:rows)
 where true
on conflict do nothing
returning event, handler;

-- name: subscription_delete
delete from holdfast_subscription
 where (event, handler) in (select json_extract(value, '$.event'), json_extract(value, '$.handler') from json_each(:rows))
returning event, handler;

-- name: subscription_keep
update holdfast_subscription
   set keep_ms = x.keep_ms
  from (select json_extract(value, '$.event') as event, json_extract(value, '$.handler') as handler,
               json_extract(value, '$.keep_ms') as keep_ms
          from json_each(:rows)) x
 where holdfast_subscription.event = x.event and holdfast_subscription.handler = x.handler
   and holdfast_subscription.keep_ms is not x.keep_ms;

-- name: subscription_kept
select event, max(keep_ms) from holdfast_subscription where keep_ms is not null group by event;

-- name: subscription_replaying
select replay_after, created_at from holdfast_subscription
 where event = :event and handler = :handler and replay_after is not null;

-- name: subscription_replayed
update holdfast_subscription set replay_after = :after where event = :event and handler = :handler;

-- name: event_stored
-- A walk along the ids, which are the order of publishing; a bounded number is looked at, whatever there is between the events.
with looked as materialized (
  select j.id, j.type, j.chain_index, j.input, j.version, j.planned_at, j.context
    from holdfast_job j
   where j.id > :after and j.id < :until
   order by j.id
   limit :look),
found as materialized (
  select id, type, input, version, planned_at, context from looked
   where (type = :event or substr(type, 1, length(:event) + 1) = :event || '/') and chain_index = 0)
select id, type, input, version, planned_at, context from found
union all
select id, type, null, null, null, null from (select id, type from looked order by id desc limit 1) last
 where not exists (select 1 from found f where f.id = last.id)
 order by 1;

-- name: event_waiting
-- Events that were published before anybody subscribed: one pending row under the event's own name.
select q.job_id, j.type, j.input, j.priority, j.trace, j.planned_at, j.version, j.context
  from holdfast_queue q cross join holdfast_job j on j.id = q.job_id
 where q.type = :event and q.token is null
 order by q.job_id
 limit :limit;
