-- fragment: manifest_columns
-- The fields of `Manifest`, in their order.
id, source, period, part, state, objects, items, rows, bytes, dropped, definition, token, expires_at, error, created_at,
changed_at, exported_at, verified_at, drop_eligible_at, dropped_at, restored_at

-- name: manifest_get
select {manifest_columns} from holdfast_archive_manifest where id = :id;

-- name: manifest_find
select {manifest_columns} from holdfast_archive_manifest
 where source = :source and period = :period and part = :part;

-- name: manifest_parts
select {manifest_columns} from holdfast_archive_manifest where source = :source and period = :period order by part;

-- name: manifest_page
-- The newest period first.
select {manifest_columns} from holdfast_archive_manifest
 where (:source is null or source = :source) and (:state is null or state = :state)
   and (:after is null or (period, source, part) < (
     select period, source, part from holdfast_archive_manifest where id = :after))
 order by period desc, source desc, part desc
 limit :limit;

-- name: manifest_eligible
select {manifest_columns} from holdfast_archive_manifest
 where source = :source and state = 'verified' and drop_eligible_at <= {now}
 order by period, part
 limit :limit;

-- name: manifest_totals
select source, state, count(*), sum(items), sum(rows), sum(bytes),
       count(error)
  from holdfast_archive_manifest group by source, state order by source, state;

-- name: manifest_overdue
-- Manifests that did not get on for so long: not verified, or not dropped though they may be.
select {manifest_columns} from holdfast_archive_manifest
 where state not in ('dropped', 'verified') and changed_at < {now} - :late_ms * 1000
    or state = 'verified' and drop_eligible_at < {now} - :late_ms * 1000
 order by period, source, part
 limit :limit;

-- name: manifest_claim
-- Begins an export, or takes over one that failed or whose process died. What was dropped in part is never exported again.
insert into holdfast_archive_manifest as m
       (id, source, period, part, state, definition, token, expires_at, created_at, changed_at)
values (:id, :source, :period, :part, 'exporting', :definition, :token, {now} + :lease_ms * 1000, {now}, {now})
on conflict (source, period, part) do update
   set state = 'exporting', definition = excluded.definition, token = excluded.token,
       expires_at = excluded.expires_at, changed_at = excluded.changed_at
 where m.state in ('pending', 'exporting', 'exported', 'failed') and m.dropped = 0
   and (m.token is null or m.expires_at <= excluded.changed_at)
returning {manifest_columns};

-- name: manifest_hold
-- Takes a manifest for a drop, a check or a restore.
update holdfast_archive_manifest
   set token = :token, expires_at = {now} + :lease_ms * 1000
 where id = :id and state in (select value from json_each(:states))
   and (token is null or expires_at <= {now})
returning {manifest_columns};

-- name: manifest_renew
update holdfast_archive_manifest
   set expires_at = {now} + :lease_ms * 1000
 where id = :id and token = :token
returning 1;

-- name: manifest_mark_exported
update holdfast_archive_manifest
   set state = 'exported', objects = :objects, items = :items, rows = :rows, bytes = :bytes,
       definition = :definition, error = null, exported_at = {now}, verified_at = null,
       drop_eligible_at = null, changed_at = {now}
 where id = :id and token = :token and state = 'exporting'
returning 1;

-- name: manifest_mark_verified
update holdfast_archive_manifest
   set state = 'verified', error = null, verified_at = {now},
       drop_eligible_at = {now} + :keep_ms * 1000,
       token = null, expires_at = null, changed_at = {now}
 where id = :id and token = :token and state = 'exported'
returning 1;

-- name: manifest_empty
-- A supplement that turned out to hold nothing leaves no trace.
delete from holdfast_archive_manifest where id = :id and token = :token and state = 'exporting' and rows = 0
returning 1;

-- name: manifest_count_dropped
update holdfast_archive_manifest
   set dropped = dropped + :items, changed_at = {now}
 where id = :id and token = :token and state = 'verified'
returning 1;

-- name: manifest_mark_dropped
update holdfast_archive_manifest
   set state = 'dropped', error = null, dropped_at = {now}, token = null, expires_at = null,
       changed_at = {now}
 where id = :id and token = :token and state = 'verified'
returning 1;

-- name: manifest_mark_restored
update holdfast_archive_manifest
   set state = 'verified', dropped = 0, error = null, restored_at = {now},
       verified_at = {now},
       drop_eligible_at = {now} + :keep_ms * 1000, dropped_at = null,
       token = null, expires_at = null, changed_at = {now}
 where id = :id and token = :token and state in ('verified', 'dropped')
returning 1;

-- name: manifest_release
-- Gives a manifest up as it is, or with another state and the reason.
update holdfast_archive_manifest
   set state = coalesce(:state, state), error = :error, token = null, expires_at = null,
       changed_at = {now}
 where id = :id and token = :token
returning 1;

-- name: archive_recount
-- Counts chains that came back from the archive as if they had not been removed.
insert into holdfast_tally (at, type, completed, failed, cancelled, removed)
select {now}, json_extract(value, '$.type'), json_extract(value, '$.completed'), json_extract(value, '$.failed'),
       json_extract(value, '$.cancelled'), -json_extract(value, '$.completed') - json_extract(value, '$.failed')
       - json_extract(value, '$.cancelled')
  from json_each(:rows);
