-- name: audit_append
-- Records a manual change, in the transaction that made it.
insert into holdfast_audit (id, at, actor, role, action, target, before, after, reason, request_id)
select json_extract(value, '$.id'), {now}, json_extract(value, '$.actor'),
       json_extract(value, '$.role'), json_extract(value, '$.action'), json_extract(value, '$.target'),
       json_extract(value, '$.before'), json_extract(value, '$.after'), json_extract(value, '$.reason'),
       json_extract(value, '$.request_id')
  from json_each(:rows);

-- name: audit_list
-- The newest first, from a given one on; every condition is optional. A change of many has the ids in what it left.
select id, actor, role, action, target, before, after, reason, request_id, at
  from holdfast_audit
 where (:before_at is null or (at, id) < (:before_at, :before_id))
   and (:actor is null or actor = :actor)
   and (:action is null or action = :action)
   and (:target is null or target = :target or (:within is not null and instr(after, :within) > 0))
 order by at desc, id desc
 limit :limit;
