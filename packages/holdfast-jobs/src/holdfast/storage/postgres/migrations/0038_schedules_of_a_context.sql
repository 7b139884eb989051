-- Schedules by what they were set in, so that lists find those of a tenant in the order of their names. Triggers write it: moving
-- a schedule to its next slot changes no context, and does no more than before.
create table holdfast.schedule_context (
  name          text collate "C" not null,
  value         text collate "C" not null,
  schedule      text collate "C" not null,
  primary key (name, value, schedule)
);

create function holdfast.index_schedule_context() returns trigger
  language plpgsql
  as $$
begin
  if tg_op operator(pg_catalog.<>) 'INSERT' then
    delete from holdfast.schedule_context c using pg_catalog.json_each_text(old.context::pg_catalog.json) e
     where c.name operator(pg_catalog.=) e.key and c.value operator(pg_catalog.=) e.value
       and c.schedule operator(pg_catalog.=) old.name;
  end if;
  if tg_op operator(pg_catalog.<>) 'DELETE' then
    insert into holdfast.schedule_context (name, value, schedule)
    select e.key, e.value, new.name from pg_catalog.json_each_text(new.context::pg_catalog.json) e
    on conflict do nothing;
  end if;
  return null;
end
$$;

create trigger schedule_context_added after insert on holdfast.schedule
  for each row when (new.context is not null) execute function holdfast.index_schedule_context();

create trigger schedule_context_changed after update of context on holdfast.schedule
  for each row when (old.context is distinct from new.context) execute function holdfast.index_schedule_context();

create trigger schedule_context_removed after delete on holdfast.schedule
  for each row when (old.context is not null) execute function holdfast.index_schedule_context();

-- One that is set or deleted meanwhile may leave a row too many here; lists compare the schedule's own context.
insert into holdfast.schedule_context (name, value, schedule)
select e.key, e.value, s.name from holdfast.schedule s cross join lateral json_each_text(s.context::json) e
on conflict do nothing;
