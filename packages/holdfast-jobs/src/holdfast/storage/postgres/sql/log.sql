-- name: event_publish
-- Reads the subscriptions of an event, and appends it to the log if a reader is known here or registered in the database: once,
-- however many read it. A row without a handler says that it was appended. On a connection that does not tell us of its commit the
-- hint is part of the transaction. It goes to the newest part that was attached before the transaction began: a session that has
-- locked the log learns of a partition only with its next transaction.
with chosen as materialized (
  select :hash::bigint % coalesce((select i.log_lines from holdfast.identity i where i.only_row), 16) as line
   where :declared::boolean
      or exists (select from holdfast.log_pattern p where :event like replace(replace(p.pattern, '_', '\_'), '*', '%'))),
appended as (
  insert into holdfast.log (line, place, event, key, data, headers, id, at, part)
  select line, nextval(('holdfast.log_line_' || line)::regclass), :event, :key, :data, :headers, :id::uuid,
         holdfast.moment(:now::bigint),
         coalesce((select max(part) from holdfast.log_part where attached_at <= transaction_timestamp()),
                  (select min(part) from holdfast.log_part), 0)
    from chosen
  returning 1)
select event, handler from holdfast.subscription where event = :event
union all
select :event, case when :channel::text is not null and pg_notify(:channel, '[{"k":"due","t":"log:"}]')::text is null then '' end
  from appended
 order by 1, 2;
