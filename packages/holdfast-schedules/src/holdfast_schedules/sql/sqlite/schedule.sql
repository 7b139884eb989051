-- fragment: schedule_columns
-- The fields of `ScheduleRecord`, in their order.
name, type, input, schedule, zone, missed, overlap, jitter_ms, priority, max_attempts, version, sealed, context, next_at, paused,
       paused_by, paused_at, last_slot, last_job, error, created_at, changed_at, {now}

-- fragment: is_within
-- Whether a schedule starts its jobs in a context with this value.
(select e.value from json_each(holdfast_schedule.context) e where e.key = :context_name) = :context_value

-- fragment: of_context
-- The schedules of a context by its index, in the order of their names. What a row there says is compared with the schedule.
(select c.schedule as of_context from holdfast_schedule_context c where c.name = :context_name and c.value = :context_value)
  join holdfast_schedule on name = of_context and {is_within}

-- fragment: slot_columns
-- The fields of `SlotRecord`, in their order.
schedule, slot, state, requested, job_id, error, decided_at

-- fragment: put_schedule
-- Sets a schedule. Its next slot moves only if the schedule itself has changed: a process may start a slot at the same time.
insert into holdfast_schedule (name, type, input, schedule, zone, missed, overlap, jitter_ms, priority, max_attempts, version,
                               sealed, context, next_at, created_at, changed_at)
values (:name, :type, :input, :schedule, :zone, :missed, :overlap, :jitter_ms, :priority, :max_attempts, :version, :sealed,
        :context, :next_at, {now}, {now})
on conflict (name) do update
   set type = excluded.type, input = excluded.input, schedule = excluded.schedule, zone = excluded.zone, missed = excluded.missed,
       overlap = excluded.overlap, jitter_ms = excluded.jitter_ms, priority = excluded.priority,
       max_attempts = excluded.max_attempts, version = excluded.version, sealed = excluded.sealed,
       context = excluded.context, error = null,
       next_at = case when (holdfast_schedule.schedule, holdfast_schedule.zone) = (excluded.schedule, excluded.zone)
                      then holdfast_schedule.next_at else excluded.next_at end,
       changed_at = excluded.changed_at

-- name: schedule_put
-- Sets a schedule.
{put_schedule}
returning {schedule_columns};

-- name: schedule_put_within
-- Sets a schedule, unless there is one of this name outside the context.
{put_schedule}
 where {is_within}
returning {schedule_columns};

-- name: schedule_get
select {schedule_columns} from holdfast_schedule where name = :name;

-- name: schedule_get_within
-- The same, of those within a context.
select {schedule_columns} from holdfast_schedule where name = :name and {is_within};

-- name: schedule_lock
-- Reads a schedule; no other writer is in between.
select {schedule_columns} from holdfast_schedule where name = :name;

-- name: schedule_lock_within
-- The same, of those within a context.
select {schedule_columns} from holdfast_schedule where name = :name and {is_within};

-- name: schedule_list
-- A page in the order of names, after one of them.
select {schedule_columns} from holdfast_schedule
 where name > :after
   and (:prefix is null or substr(name, 1, length(:prefix)) = :prefix)
   and (:type is null or type = :type)
   and (:paused is null or paused = :paused)
   and (:late_ms is null or (paused = 0 and next_at < {now} - :late_ms * 1000))
 order by name limit :limit;

-- name: schedule_list_within
-- The same, of those within a context.
select {schedule_columns} from {of_context}
 where of_context > :after
   and (:prefix is null or substr(name, 1, length(:prefix)) = :prefix)
   and (:type is null or type = :type)
   and (:paused is null or paused = :paused)
   and (:late_ms is null or (paused = 0 and next_at < {now} - :late_ms * 1000))
 order by of_context limit :limit;

-- name: schedule_near
-- Names that begin like one that does not exist, for the error.
select name from holdfast_schedule where substr(name, 1, 3) = substr(:name, 1, 3) order by name limit 100;

-- name: schedule_near_within
-- The same, of those within a context.
select name from {of_context} where substr(of_context, 1, 3) = substr(:name, 1, 3) order by of_context limit 100;

-- name: schedule_pause
-- Pauses or resumes a schedule; a resumed one goes on with its next slot, those of the pause are left out.
update holdfast_schedule
   set paused = :paused, paused_by = case when :paused then :by end, paused_at = case when :paused then {now} end,
       next_at = case when :paused then next_at else :next_at end
 where name = :name and paused <> :paused
returning 1;

-- name: schedule_delete
delete from holdfast_schedule where name = :name returning 1;

-- name: schedule_slots_delete
delete from holdfast_schedule_slot where schedule = :name;

-- name: schedule_heads
-- The first due time of each type that has schedules which are not paused: one descent of the index for each type, however many
-- schedules there are. Nothing while everything is paused.
with recursive heads (type) as (
  select min(s.type) from holdfast_schedule s where s.paused = 0
  union all
  select (select min(s.type) from holdfast_schedule s where s.paused = 0 and s.type > h.type) from heads h where h.type is not null
)
select h.type, (select min(s.next_at) from holdfast_schedule s where s.paused = 0 and s.type = h.type), {now}
  from heads h
 where h.type is not null and not exists (select 1 from holdfast_identity i where i.paused);

-- name: schedule_take
-- Due schedules of a type, for the transaction that starts their jobs; no other writer is in between.
select {schedule_columns} from holdfast_schedule
 where type = :type and paused = 0 and next_at <= {now}
 order by next_at limit :limit;

-- name: schedule_move
-- Moves schedules to their next slots.
update holdfast_schedule
   set next_at = x.next_at, last_slot = x.last_slot, last_job = coalesce(x.last_job, holdfast_schedule.last_job), error = x.error
  from (select json_extract(value, '$.name') as name, json_extract(value, '$.next_at') as next_at,
               json_extract(value, '$.last_slot') as last_slot, json_extract(value, '$.last_job') as last_job,
               json_extract(value, '$.error') as error
          from json_each(:rows)) x
 where holdfast_schedule.name = x.name;

-- name: schedule_slot_put
-- Records slots as decided, and returns those that were not before: a job is started for these alone, even if a clock was set back.
insert into holdfast_schedule_slot (schedule, slot, state, requested, job_id, error, decided_at)
select json_extract(value, '$.schedule'), json_extract(value, '$.slot'), json_extract(value, '$.state'),
       json_extract(value, '$.requested'), json_extract(value, '$.job_id'), json_extract(value, '$.error'), {now}
  from json_each(:rows) where true
on conflict do nothing
returning schedule, slot;

-- name: schedule_slot_list
-- The latest slots of a schedule, newest first.
select {slot_columns} from holdfast_schedule_slot where schedule = :name order by slot desc limit :limit;

-- name: schedule_slot_list_within
-- The same, of a schedule within a context.
select {slot_columns} from holdfast_schedule_slot
 where schedule = :name and exists (select 1 from holdfast_schedule where name = :name and {is_within})
 order by slot desc limit :limit;

-- name: schedule_slot_trim
-- Removes old slots, a batch at a time.
delete from holdfast_schedule_slot
 where (schedule, slot) in (
   select schedule, slot from holdfast_schedule_slot where decided_at < {now} - :keep_ms * 1000 order by decided_at limit :limit)
returning 1;

-- name: schedule_totals
-- How many schedules each type has, how many of them are paused, late or were refused, and since when the first one is due.
select type, count(*), sum(paused), sum(paused = 0 and next_at < {now} - :late_ms * 1000), sum(error is not null),
       min(case when paused = 0 then next_at end), {now}
  from holdfast_schedule group by type order by type;

-- name: schedule_totals_within
-- The same, of those within a context.
select type, count(*), sum(paused), sum(paused = 0 and next_at < {now} - :late_ms * 1000), sum(error is not null),
       min(case when paused = 0 then next_at end), {now}
  from {of_context} group by type order by type;
