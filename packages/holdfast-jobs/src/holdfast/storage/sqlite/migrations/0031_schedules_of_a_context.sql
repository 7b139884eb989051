-- Schedules by what they were set in, so that lists find those of a tenant in the order of their names. Triggers write it: moving
-- a schedule to its next slot changes no context, and does no more than before.
create table holdfast_schedule_context (
  name          text not null,
  value         text not null,
  schedule      text not null,
  primary key (name, value, schedule)
) without rowid;

create trigger holdfast_schedule_context_added after insert on holdfast_schedule when new.context is not null
begin
  insert into holdfast_schedule_context (name, value, schedule) select key, value, new.name from json_each(new.context);
end;

create trigger holdfast_schedule_context_changed after update of context on holdfast_schedule when old.context is not new.context
begin
  delete from holdfast_schedule_context
   where (name, value, schedule) in (select key, value, old.name from json_each(old.context));
  insert into holdfast_schedule_context (name, value, schedule) select key, value, new.name from json_each(new.context);
end;

create trigger holdfast_schedule_context_removed after delete on holdfast_schedule when old.context is not null
begin
  delete from holdfast_schedule_context
   where (name, value, schedule) in (select key, value, old.name from json_each(old.context));
end;

insert into holdfast_schedule_context (name, value, schedule)
select e.key, e.value, s.name from holdfast_schedule s cross join json_each(s.context) e;
