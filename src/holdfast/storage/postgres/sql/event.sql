-- name: subscription_list
select event, handler from holdfast.subscription where event = any (array (select e from json_array_elements_text(:events::json) e))
 order by event, handler;

-- name: subscription_page
select event, handler, holdfast.us(created_at) from holdfast.subscription order by event, handler limit :limit::integer;

-- name: subscription_insert
insert into holdfast.subscription (event, handler)
select event, handler from json_to_recordset(:rows::json) as x(event text, handler text)
on conflict do nothing
returning event, handler;

-- name: subscription_delete
delete from holdfast.subscription s
 using json_to_recordset(:rows::json) as x(event text, handler text)
 where s.event = x.event and s.handler = x.handler
returning s.event, s.handler;

-- name: event_waiting
-- Events that were published before anybody subscribed: one pending row under the event's own name.
select q.job_id::text, j.type, j.input, j.priority, j.trace, holdfast.us(j.planned_at), j.version
  from holdfast.queue q join holdfast.job j on j.id = q.job_id
 where q.type = :event and q.token is null
 order by q.job_id
 limit :limit::integer
   for update of q skip locked;
