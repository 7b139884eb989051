-- name: keep_rules
select type, state, keep_ms, swept_until from holdfast_keep order by type, state;

-- name: keep_forget
delete from holdfast_keep
 where type in (select value from json_each(:types))
   and (type, state) not in (
     select json_extract(value, '$.type'), json_extract(value, '$.state') from json_each(:rows));

-- name: keep_declare
insert into holdfast_keep (type, state, keep_ms)
select json_extract(value, '$.type'), json_extract(value, '$.state'), json_extract(value, '$.keep_ms') from json_each(:rows) where true
on conflict (type, state) do update set keep_ms = excluded.keep_ms where keep_ms <> excluded.keep_ms;

-- name: keep_oldest
select id from holdfast_job order by id limit 1;

-- name: keep_ended_page
-- Chains of a type that ended in a state within a minute, along the index by time.
select j.chain_id, o.finished_at
  from holdfast_outcome o indexed by holdfast_outcome_finished
 cross join holdfast_job j on j.id = o.job_id
 cross join holdfast_job f on f.id = j.chain_id
 where o.finished_at >= :since and o.finished_at < :until and o.state = :state and not o.continued and f.type = :type
 order by o.finished_at, o.job_id
 limit :limit;

-- name: keep_swept
update holdfast_keep set swept_until = :until where type = :type and state = :state;
