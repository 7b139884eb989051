-- By what a physical copy is recognised: it has the original's name and system identifier, but it was started at another
-- time and is reached under another address. A declared environment says it where addresses cannot.
alter table holdfast.identity
  add column started_at  timestamptz,
  add column hosts       text[],
  add column environment text;

-- As before, but for operators: whatever is on the caller's search path, these are pg_catalog's.
create or replace function holdfast.timeline() returns bigint
  language plpgsql stable
  as $$
begin
  return ('x' operator(pg_catalog.||) pg_catalog.left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 8))
         ::bit(32)::bigint;
exception when others then
  return 0;
end
$$;
