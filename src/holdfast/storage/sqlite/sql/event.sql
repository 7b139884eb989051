-- name: subscription_list
select event, handler from holdfast_subscription
 where event in (select value from json_each(:events))
 order by event, handler;

-- name: subscription_page
select event, handler, created_at from holdfast_subscription order by event, handler limit :limit;

-- name: subscription_insert
insert into holdfast_subscription (event, handler, created_at)
select json_extract(value, '$.event'), json_extract(value, '$.handler'), (select now from holdfast_clock)
  from json_each(:rows)
 where true
on conflict do nothing
returning event, handler;

-- name: subscription_delete
delete from holdfast_subscription
 where (event, handler) in (select json_extract(value, '$.event'), json_extract(value, '$.handler') from json_each(:rows))
returning event, handler;

-- name: event_waiting
-- Events that were published before anybody subscribed: one pending row under the event's own name.
select q.job_id, j.type, j.input, j.priority, j.trace, j.planned_at, j.version
  from holdfast_queue q cross join holdfast_job j on j.id = q.job_id
 where q.type = :event and q.token is null
 order by q.job_id
 limit :limit;
