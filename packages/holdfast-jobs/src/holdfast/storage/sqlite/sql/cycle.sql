-- name: cycle_put
-- Registers cycles. One whose schedule changed begins anew, so that no slot of the old one is caught up.
insert into holdfast_cycle as c (name, schedule, zone, singleton, missed, last_slot, changed_at)
select json_extract(value, '$.name'), json_extract(value, '$.schedule'), json_extract(value, '$.zone'),
       json_extract(value, '$.singleton'), json_extract(value, '$.missed'),
       {now}, {now}
  from json_each(:rows)
 where true
on conflict (name) do update
   set schedule = excluded.schedule, zone = excluded.zone, singleton = excluded.singleton, missed = excluded.missed,
       last_slot = case when (c.schedule, c.zone) = (excluded.schedule, excluded.zone) then c.last_slot else excluded.last_slot end,
       changed_at = excluded.changed_at
 where (c.schedule, c.zone, c.singleton, c.missed) <> (excluded.schedule, excluded.zone, excluded.singleton, excluded.missed);

-- name: cycle_states
-- What a tick has to know of its cycles, by one clock: slots that run or rest, and requests, also those whose process died
-- or that have rested, because no schedule brings them back.
select c.name, c.paused, c.last_slot, coalesce(:now, k.now), (
         select json_group_array(json_array(slot, due_at, state, expires_at)) from (
           select slot, due_at, state, expires_at from holdfast_cycle_slot
            where cycle = c.name and state <> 'completed'
              and (state = 'pending' or expires_at > coalesce(:now, k.now) or (slot like 'now-%' and expires_at is not null))
            order by due_at, slot))
  from holdfast_clock k cross join holdfast_cycle c
 where c.name in (select value from json_each(:names));

-- name: cycle_list
-- Every cycle, and who runs it now.
select c.name, c.schedule, c.zone, c.singleton, c.missed, c.paused, c.paused_by, c.paused_at, c.last_slot,
       s.slot, r.worker_id, s.expires_at
  from holdfast_cycle c
  left join holdfast_cycle_slot s
    on s.cycle = c.name and s.state = 'running' and s.expires_at > {now}
  left join holdfast_worker_runs r on r.id = s.run_id
 order by c.name;

-- name: cycle_pause
-- Pauses or resumes a cycle with all its shards. A resumed one does not make up for what the pause left out.
update holdfast_cycle
   set paused = :paused, paused_by = case when :paused then :by end,
       paused_at = case when :paused then {now} end,
       last_slot = case when paused and not :paused then max(last_slot, {now}) else last_slot end
 where name = :name or substr(name, 1, length(:name) + 1) = :name || ':'
returning name;

-- name: cycle_request
-- Asks for a run now, of the cycle or of each of its shards.
insert into holdfast_cycle_slot (cycle, slot, due_at, state)
select name, :slot, {now}, 'pending'
  from holdfast_cycle
 where name = :name or substr(name, 1, length(:name) + 1) = :name || ':'
returning cycle;

-- name: cycle_lock
-- The write transaction itself keeps other claims away.
select name from holdfast_cycle where name = :cycle;

-- name: cycle_advance
update holdfast_cycle set last_slot = max(last_slot, :due_at) where name = :cycle;

-- name: slot_claim
-- Takes a slot for one run: a new one, a request, one whose run failed and has rested, or one whose process died. Refused
-- when the slot has been decided, the cycle is paused, or another slot of the cycle is running.
insert into holdfast_cycle_slot as s (cycle, slot, due_at, token, run_id, runs, state, expires_at)
select c.name, :slot, :due_at, :token, :run_id, 1, 'running', {now} + :lease_ms * 1000
  from holdfast_cycle c
 where c.name = :cycle
   and (:requested or (not c.paused and c.last_slot < :due_at))
   and not exists (
     select 1 from holdfast_cycle_slot o
      where o.cycle = c.name and o.slot <> :slot and o.state = 'running'
        and o.expires_at > {now})
on conflict (cycle, slot) do update
   set token = excluded.token, run_id = excluded.run_id, runs = s.runs + 1, state = 'running', expires_at = excluded.expires_at,
       finished_at = null
 where s.state = 'pending'
    or (s.state in ('running', 'failed') and s.expires_at <= {now})
returning runs;

-- name: slot_abandon
-- Slots that a dead process left running and that a newer one supersedes will not be run any more.
update holdfast_cycle_slot
   set state = 'failed', expires_at = null, finished_at = {now}
 where cycle = :cycle and slot <> :slot and state = 'running' and expires_at <= {now}
returning slot;

-- name: slot_renew
-- Extends a running slot by its token. One that expired but that nobody took may be renewed: nobody else has its token.
update holdfast_cycle_slot
   set expires_at = {now} + :lease_ms * 1000
 where cycle = :cycle and slot = :slot and token = :token and state = 'running'
returning slot;

-- name: slot_fence
-- Proves, as the last statement of a write transaction, that its run still holds the slot.
select slot from holdfast_cycle_slot where cycle = :cycle and slot = :slot and token = :token and state = 'running';

-- name: slot_finish
-- Ends a run of a slot by its token; repeated after an unknown commit it answers the same. A failed slot may be claimed
-- again once its pause is over, without a pause it may not.
update holdfast_cycle_slot
   set state = :state, finished_at = {now},
       expires_at = {now} + :pause_ms * 1000
 where cycle = :cycle and slot = :slot and token = :token and state in ('running', :state)
returning slot;

-- name: run_begin
insert into holdfast_worker_runs (id, worker_name, worker_id, slot, started_at, seen_at, counters)
values (:id, :name, :worker, :slot, {now},
        {now}, '{}')
returning started_at;

-- name: run_touch
update holdfast_worker_runs
   set seen_at = {now}, counters = coalesce(:counters, counters)
 where id = :id and finished_at is null;

-- name: run_finish
-- Ends a run unless it was found dead before.
update holdfast_worker_runs
   set finished_at = {now}, seen_at = {now},
       outcome = :outcome, counters = :counters, error_message = :error
 where id = :id and finished_at is null
returning finished_at;

-- name: run_mark_crashed
-- Ends the runs of a slot that can no longer end by themselves.
update holdfast_worker_runs
   set finished_at = seen_at, outcome = 'crashed', error_message = 'the process died, or lost the slot'
 where worker_name = :name and slot in (select value from json_each(:slots)) and id <> :id and finished_at is null
returning id;

-- fragment: run_columns
-- The fields of `RunRecord`, in their order. A run that has given no sign for a while and has not ended belongs to a dead
-- process.
id, worker_name, worker_id, slot, started_at, seen_at, finished_at,
       case when finished_at is not null then outcome
            when seen_at <= {now} - :grace_ms * 1000 then 'crashed' else 'running' end,
       counters, error_message

-- name: run_list
-- The last runs of everything.
select {run_columns}
  from holdfast_worker_runs
 order by id desc
 limit :limit;

-- name: run_list_of
-- The last runs of one cycle, or of ticks.
select {run_columns}
  from holdfast_worker_runs
 where worker_name = :name
 order by started_at desc, id desc
 limit :limit;
