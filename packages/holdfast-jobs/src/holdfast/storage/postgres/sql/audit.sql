-- name: audit_append
-- Records a manual change, in the transaction that made it.
insert into holdfast.audit (id, at, actor, role, action, target, before, after, reason, request_id)
select x.id, holdfast.moment(:now::bigint), x.actor, x.role, x.action, x.target, x.before, x.after, x.reason, x.request_id
  from json_to_recordset(:rows::json) as x(
    id uuid, actor text, role text, action text, target text, before text, after text, reason text, request_id text);

-- name: audit_list
-- The newest first, from a given one on; every condition is optional. A change of many has the ids in what it left.
select id::text, actor, role, action, target, before, after, reason, request_id, holdfast.us(at)
  from holdfast.audit a
 where (:before_at::bigint is null or (at, id) < (to_timestamp(:before_at::bigint / 1000000.0), :before_id::uuid))
   and (:actor::text is null or actor = :actor)
   and (:action::text is null or action = :action)
   and (:target::text is null or target = :target or (:within::text is not null and strpos(after, :within) > 0))
 order by a.at desc, a.id desc
 limit :limit::integer;
