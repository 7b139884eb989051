-- Fences grow although another server takes over whose clock is behind: above the clock comes the timeline, which every
-- promotion raises, and above that a base, raised when the rows come to a server with timelines of its own.
alter table holdfast.identity
  add column system_id  bigint,
  add column timeline   bigint not null default 0,
  add column fence_base bigint not null default 0;

-- The timeline that this server writes; 0 where it does not tell.
create function holdfast.timeline() returns bigint
  language plpgsql stable
  as $$
begin
  return ('x' || left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 8))::bit(32)::bigint;
exception when others then
  return 0;
end
$$;

-- What every copy of the server's files shares, and no other server has; null where it does not tell.
create function holdfast.system_id() returns bigint
  language plpgsql stable
  as $$
begin
  return (select s.system_identifier from pg_catalog.pg_control_system() s);
exception when others then
  return null;
end
$$;
