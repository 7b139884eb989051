-- What was archived, for people's own queries: the manifests without what only a running export needs.
create view holdfast_archive_exports as
select id, source, period, part, state, objects, rows, bytes, dropped, error,
       created_at, exported_at, verified_at, drop_eligible_at, dropped_at, restored_at
  from holdfast_archive_manifest;
