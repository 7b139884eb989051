-- name: keep_rules
select type, state, keep_ms, holdfast.us(swept_until) from holdfast.keep order by type, state;

-- name: keep_forget
delete from holdfast.keep
 where type = any (array (select json_array_elements_text(:types::json)))
   and not exists (
     select from json_to_recordset(:rows::json) as x(type text, state text) where x.type = keep.type and x.state = keep.state);

-- name: keep_declare
insert into holdfast.keep as k (type, state, keep_ms)
select x.type, x.state, x.keep_ms from json_to_recordset(:rows::json) as x(type text, state text, keep_ms bigint)
 order by x.type, x.state
on conflict (type, state) do update set keep_ms = excluded.keep_ms where k.keep_ms <> excluded.keep_ms;

-- name: keep_oldest
select j.id::text from holdfast.job j order by j.id limit 1;

-- name: keep_ended_page
-- Chains of a type that ended in a state within a minute, along the index by time.
select j.chain_id::text, holdfast.us(o.finished_at)
  from holdfast.outcome o
  join holdfast.job j on j.id = o.job_id
  join holdfast.job f on f.id = j.chain_id
 where o.finished_at >= to_timestamp(:since::bigint / 1000000.0) and o.finished_at < to_timestamp(:until::bigint / 1000000.0)
   and o.state = :state and not o.continued and f.type = :type
 order by o.finished_at, o.job_id
 limit :limit::integer;

-- name: keep_swept
update holdfast.keep set swept_until = to_timestamp(:until::bigint / 1000000.0) where type = :type and state = :state;
