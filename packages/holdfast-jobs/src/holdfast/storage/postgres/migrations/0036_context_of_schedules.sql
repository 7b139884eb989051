-- What a schedule was set in: its jobs are started in it. A JSON object, null without one.
alter table holdfast.schedule add column context text;
