-- fragment: schedule_columns
-- The fields of `ScheduleRecord`, in their order.
s.name, s.type, s.input, s.schedule, s.zone, s.missed, s.overlap, s.jitter_ms, s.priority, s.max_attempts, s.version, s.sealed, s.context,
       holdfast.us(s.next_at), s.paused, s.paused_by, holdfast.us(s.paused_at), holdfast.us(s.last_slot), s.last_job::text, s.error,
       holdfast.us(s.created_at), holdfast.us(s.changed_at), holdfast.us(holdfast.moment(:now::bigint))

-- fragment: is_within
-- Whether a schedule starts its jobs in a context with this value.
(s.context::json ->> :context_name::text) = :context_value

-- fragment: of_context
-- The schedules of a context by its index, in the order of their names. What a row there says is compared with the schedule.
holdfast.schedule_context c
  join holdfast.schedule s on s.name = c.schedule and {is_within}
 where c.name = :context_name and c.value = :context_value

-- fragment: slot_columns
-- The fields of `SlotRecord`, in their order.
s.schedule, holdfast.us(s.slot), s.state, s.requested, s.job_id::text, s.error, holdfast.us(s.decided_at)

-- fragment: put_schedule
-- Sets a schedule. Its next slot moves only if the schedule itself has changed: a process may start a slot at the same time.
insert into holdfast.schedule as s (name, type, input, schedule, zone, missed, overlap, jitter_ms, priority, max_attempts, version,
                                    sealed, context, next_at, created_at, changed_at)
values (:name, :type, :input, :schedule, :zone, :missed, :overlap, :jitter_ms::bigint, :priority::smallint, :max_attempts::integer,
        :version::integer, :sealed::boolean, :context, to_timestamp(:next_at::bigint / 1000000.0),
        holdfast.moment(:now::bigint), holdfast.moment(:now::bigint))
on conflict (name) do update
   set type = excluded.type, input = excluded.input, schedule = excluded.schedule, zone = excluded.zone, missed = excluded.missed,
       overlap = excluded.overlap, jitter_ms = excluded.jitter_ms, priority = excluded.priority,
       max_attempts = excluded.max_attempts, version = excluded.version, sealed = excluded.sealed,
       context = excluded.context, error = null,
       next_at = case when (s.schedule, s.zone) = (excluded.schedule, excluded.zone) then s.next_at else excluded.next_at end,
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
select {schedule_columns} from holdfast.schedule s where s.name = :name;

-- name: schedule_get_within
-- The same, of those within a context.
select {schedule_columns} from holdfast.schedule s where s.name = :name and {is_within};

-- name: schedule_lock
-- Reads a schedule and keeps others from starting its slots until this transaction ends.
select {schedule_columns} from holdfast.schedule s where s.name = :name for update;

-- name: schedule_lock_within
-- The same, of those within a context.
select {schedule_columns} from holdfast.schedule s where s.name = :name and {is_within} for update;

-- name: schedule_list
-- A page in the order of names, after one of them.
select {schedule_columns} from holdfast.schedule s
 where s.name > :after
   and (:prefix is null or starts_with(s.name, :prefix))
   and (:type is null or s.type = :type)
   and (:paused::boolean is null or s.paused = :paused::boolean)
   and (:late_ms::bigint is null
        or (not s.paused and s.next_at < holdfast.moment(:now::bigint) - :late_ms::bigint * interval '1 ms'))
 order by s.name limit :limit::integer;

-- name: schedule_list_within
-- The same, of those within a context.
select {schedule_columns} from {of_context}
   and c.schedule > :after
   and (:prefix is null or starts_with(c.schedule, :prefix))
   and (:type is null or s.type = :type)
   and (:paused::boolean is null or s.paused = :paused::boolean)
   and (:late_ms::bigint is null
        or (not s.paused and s.next_at < holdfast.moment(:now::bigint) - :late_ms::bigint * interval '1 ms'))
 order by c.schedule limit :limit::integer;

-- name: schedule_near
-- Names that begin like one that does not exist, for the error.
select s.name from holdfast.schedule s where starts_with(s.name, left(:name, 3)) order by s.name limit 100;

-- name: schedule_near_within
-- The same, of those within a context.
select s.name from {of_context} and starts_with(c.schedule, left(:name, 3)) order by c.schedule limit 100;

-- name: schedule_pause
-- Pauses or resumes a schedule; a resumed one goes on with its next slot, those of the pause are left out.
update holdfast.schedule s
   set paused = :paused::boolean, paused_by = case when :paused::boolean then :by end,
       paused_at = case when :paused::boolean then holdfast.moment(:now::bigint) end,
       next_at = case when :paused::boolean then s.next_at else to_timestamp(:next_at::bigint / 1000000.0) end
 where s.name = :name and s.paused <> :paused::boolean
returning 1;

-- name: schedule_delete
delete from holdfast.schedule where name = :name returning 1;

-- name: schedule_slots_delete
delete from holdfast.schedule_slot where schedule = :name;

-- name: schedule_heads
-- The first due time of each type that has schedules which are not paused: one descent of the index for each type, however many
-- schedules there are. Nothing while everything is paused.
with recursive heads as (
  (select s.type, s.next_at from holdfast.schedule s where not s.paused order by s.type, s.next_at limit 1)
  union all
  select n.type, n.next_at
    from heads h
   cross join lateral (
     select s.type, s.next_at from holdfast.schedule s
      where not s.paused and s.type > h.type order by s.type, s.next_at limit 1) n
)
select h.type, holdfast.us(h.next_at), holdfast.us(holdfast.moment(:now::bigint))
  from heads h
 where not exists (select from holdfast.identity i where i.paused);

-- name: schedule_take
-- Locks due schedules of a type for the transaction that starts their jobs. What another process has locked is being started by it,
-- and is skipped; what it has committed is due no more.
select {schedule_columns} from holdfast.schedule s
 where s.type = :type and not s.paused and s.next_at <= holdfast.moment(:now::bigint)
 order by s.next_at limit :limit::integer
   for update skip locked;

-- name: schedule_move
-- Moves schedules to their next slots; the caller holds their rows.
update holdfast.schedule s
   set next_at = to_timestamp(x.next_at / 1000000.0), last_slot = to_timestamp(x.last_slot / 1000000.0),
       last_job = coalesce(x.last_job, s.last_job), error = x.error
  from json_to_recordset(:rows::json) as x(name text, next_at bigint, last_slot bigint, last_job uuid, error text)
 where s.name = x.name;

-- name: schedule_slot_put
-- Records slots as decided, and returns those that were not before: a job is started for these alone, even if a clock was set back.
insert into holdfast.schedule_slot (schedule, slot, state, requested, job_id, error, decided_at)
select x.schedule, to_timestamp(x.slot / 1000000.0), x.state, x.requested, x.job_id, x.error, holdfast.moment(:now::bigint)
  from json_to_recordset(:rows::json)
       as x(schedule text, slot bigint, state text, requested boolean, job_id uuid, error text)
 order by x.schedule collate "C", x.slot
on conflict do nothing
returning schedule, holdfast.us(slot);

-- name: schedule_slot_list
-- The latest slots of a schedule, newest first.
select {slot_columns} from holdfast.schedule_slot s
 where s.schedule = :name order by s.slot desc limit :limit::integer;

-- name: schedule_slot_list_within
-- The same, of a schedule within a context.
select {slot_columns} from holdfast.schedule_slot s
 where s.schedule = :name and exists (select from holdfast.schedule s where s.name = :name and {is_within})
 order by s.slot desc limit :limit::integer;

-- name: schedule_slot_trim
-- Removes old slots, a batch at a time, beside those who write new ones. An array is made once; a join may look for the batch again.
delete from holdfast.schedule_slot
 where ctid = any (array (
   select ctid from holdfast.schedule_slot
    where decided_at < holdfast.moment(:now::bigint) - :keep_ms::bigint * interval '1 ms'
    order by decided_at limit :limit::integer for update skip locked))
returning 1;

-- name: schedule_totals
-- How many schedules each type has, how many of them are paused, late or were refused, and since when the first one is due.
select s.type, count(*), count(*) filter (where s.paused),
       count(*) filter (where not s.paused and s.next_at < holdfast.moment(:now::bigint) - :late_ms::bigint * interval '1 ms'),
       count(*) filter (where s.error is not null), holdfast.us(min(s.next_at) filter (where not s.paused)),
       holdfast.us(holdfast.moment(:now::bigint))
  from holdfast.schedule s group by s.type order by s.type;

-- name: schedule_totals_within
-- The same, of those within a context.
select s.type, count(*), count(*) filter (where s.paused),
       count(*) filter (where not s.paused and s.next_at < holdfast.moment(:now::bigint) - :late_ms::bigint * interval '1 ms'),
       count(*) filter (where s.error is not null), holdfast.us(min(s.next_at) filter (where not s.paused)),
       holdfast.us(holdfast.moment(:now::bigint))
  from {of_context} group by s.type order by s.type;
