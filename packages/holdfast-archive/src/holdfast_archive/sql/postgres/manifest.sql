-- fragment: manifest_columns
-- The fields of `Manifest`, in their order.
id::text, source, period, part, state, objects, items, rows, bytes, dropped, definition, token::text,
holdfast.us(expires_at), error, holdfast.us(created_at), holdfast.us(changed_at), holdfast.us(exported_at),
holdfast.us(verified_at), holdfast.us(drop_eligible_at), holdfast.us(dropped_at), holdfast.us(restored_at)

-- name: manifest_get
select {manifest_columns} from holdfast.archive_manifest where id = :id::uuid;

-- name: manifest_find
select {manifest_columns} from holdfast.archive_manifest
 where source = :source and period = :period and part = :part::integer;

-- name: manifest_parts
select {manifest_columns} from holdfast.archive_manifest where source = :source and period = :period order by part;

-- name: manifest_page
-- The newest period first.
select {manifest_columns} from holdfast.archive_manifest
 where (:source is null or source = :source) and (:state is null or state = :state)
   and (:after is null or (period, source, part) < (
     select period, source, part from holdfast.archive_manifest where id = :after::uuid))
 order by period desc, source desc, part desc
 limit :limit::integer;

-- name: manifest_eligible
select {manifest_columns} from holdfast.archive_manifest
 where source = :source and state = 'verified' and drop_eligible_at <= holdfast.moment(:now::bigint)
 order by period, part
 limit :limit::integer;

-- name: manifest_totals
select source, state, count(*), sum(items)::bigint, sum(rows)::bigint, sum(bytes)::bigint,
       count(*) filter (where error is not null)
  from holdfast.archive_manifest group by source, state order by source, state;

-- name: manifest_overdue
-- Manifests that did not get on for so long: not verified, or not dropped though they may be.
select {manifest_columns} from holdfast.archive_manifest
 where state not in ('dropped', 'verified') and changed_at < holdfast.moment(:now::bigint) - :late_ms::bigint * interval '1 ms'
    or state = 'verified' and drop_eligible_at < holdfast.moment(:now::bigint) - :late_ms::bigint * interval '1 ms'
 order by period, source, part
 limit :limit::integer;

-- name: manifest_claim
-- Begins an export, or takes over one that failed or whose process died. What was dropped in part is never exported again.
insert into holdfast.archive_manifest as m
       (id, source, period, part, state, definition, token, expires_at, created_at, changed_at)
select :id::uuid, :source, :period, :part::integer, 'exporting', :definition, :token::uuid,
       now + :lease_ms::bigint * interval '1 ms', now, now
  from holdfast.moment(:now::bigint) now
on conflict (source, period, part) do update
   set state = 'exporting', definition = excluded.definition, token = excluded.token,
       expires_at = excluded.expires_at, changed_at = excluded.changed_at
 where m.state in ('pending', 'exporting', 'exported', 'failed') and m.dropped = 0
   and (m.token is null or m.expires_at <= excluded.changed_at)
returning {manifest_columns};

-- name: manifest_hold
-- Takes a manifest for a drop, a check or a restore.
update holdfast.archive_manifest
   set token = :token::uuid, expires_at = holdfast.moment(:now::bigint) + :lease_ms::bigint * interval '1 ms'
 where id = :id::uuid and state = any (array (select json_array_elements_text(:states::json)))
   and (token is null or expires_at <= holdfast.moment(:now::bigint))
returning {manifest_columns};

-- name: manifest_renew
update holdfast.archive_manifest
   set expires_at = holdfast.moment(:now::bigint) + :lease_ms::bigint * interval '1 ms'
 where id = :id::uuid and token = :token::uuid
returning 1;

-- name: manifest_mark_exported
update holdfast.archive_manifest
   set state = 'exported', objects = :objects, items = :items::bigint, rows = :rows::bigint, bytes = :bytes::bigint,
       definition = :definition, error = null, exported_at = holdfast.moment(:now::bigint), verified_at = null,
       drop_eligible_at = null, changed_at = holdfast.moment(:now::bigint)
 where id = :id::uuid and token = :token::uuid and state = 'exporting'
returning 1;

-- name: manifest_mark_verified
update holdfast.archive_manifest
   set state = 'verified', error = null, verified_at = holdfast.moment(:now::bigint),
       drop_eligible_at = holdfast.moment(:now::bigint) + :keep_ms::bigint * interval '1 ms',
       token = null, expires_at = null, changed_at = holdfast.moment(:now::bigint)
 where id = :id::uuid and token = :token::uuid and state = 'exported'
returning 1;

-- name: manifest_empty
-- A supplement that turned out to hold nothing leaves no trace.
delete from holdfast.archive_manifest where id = :id::uuid and token = :token::uuid and state = 'exporting' and rows = 0
returning 1;

-- name: manifest_count_dropped
update holdfast.archive_manifest
   set dropped = dropped + :items::bigint, changed_at = holdfast.moment(:now::bigint)
 where id = :id::uuid and token = :token::uuid and state = 'verified'
returning 1;

-- name: manifest_mark_dropped
update holdfast.archive_manifest
   set state = 'dropped', error = null, dropped_at = holdfast.moment(:now::bigint), token = null, expires_at = null,
       changed_at = holdfast.moment(:now::bigint)
 where id = :id::uuid and token = :token::uuid and state = 'verified'
returning 1;

-- name: manifest_mark_restored
update holdfast.archive_manifest
   set state = 'verified', dropped = 0, error = null, restored_at = holdfast.moment(:now::bigint),
       verified_at = holdfast.moment(:now::bigint),
       drop_eligible_at = holdfast.moment(:now::bigint) + :keep_ms::bigint * interval '1 ms', dropped_at = null,
       token = null, expires_at = null, changed_at = holdfast.moment(:now::bigint)
 where id = :id::uuid and token = :token::uuid and state in ('verified', 'dropped')
returning 1;

-- name: manifest_release
-- Gives a manifest up as it is, or with another state and the reason.
update holdfast.archive_manifest
   set state = coalesce(:state, state), error = :error, token = null, expires_at = null,
       changed_at = holdfast.moment(:now::bigint)
 where id = :id::uuid and token = :token::uuid
returning 1;

-- name: archive_recount
-- Counts chains that came back from the archive as if they had not been removed.
insert into holdfast.tally (at, type, completed, failed, cancelled, removed)
select holdfast.moment(:now::bigint), type, completed, failed, cancelled, -(completed + failed + cancelled)
  from json_to_recordset(:rows::json) as x(type text, completed integer, failed integer, cancelled integer);
