-- name: cycle_put
-- Registers cycles in name order. One whose schedule changed begins anew, so that no slot of the old one is caught up.
insert into holdfast.cycle as c (name, schedule, zone, singleton, missed, last_slot, changed_at)
select x.name, x.schedule, x.zone, x.singleton, x.missed, holdfast.moment(:now::bigint), holdfast.moment(:now::bigint)
  from json_to_recordset(:rows::json) as x(name text, schedule text, zone text, singleton boolean, missed text)
 order by x.name
on conflict (name) do update
   set schedule = excluded.schedule, zone = excluded.zone, singleton = excluded.singleton, missed = excluded.missed,
       last_slot = case when (c.schedule, c.zone) = (excluded.schedule, excluded.zone) then c.last_slot else excluded.last_slot end,
       changed_at = excluded.changed_at
 where (c.schedule, c.zone, c.singleton, c.missed) <> (excluded.schedule, excluded.zone, excluded.singleton, excluded.missed);

-- name: cycle_states
-- What a tick has to know of its cycles, by one clock: slots that run or rest, and requests, also those whose process died
-- or that have rested, because no schedule brings them back.
select c.name, c.paused, holdfast.us(c.last_slot), holdfast.us(holdfast.moment(:now::bigint)),
       (select coalesce(
                 json_agg(json_build_array(s.slot, holdfast.us(s.due_at), s.state, holdfast.us(s.expires_at)) order by s.due_at, s.slot),
                 '[]'::json)::text
          from holdfast.cycle_slot s
         where s.cycle = c.name and s.state <> 'completed'
           and (s.state = 'pending' or s.expires_at > holdfast.moment(:now::bigint)
                or (s.slot like 'now-%' and s.expires_at is not null)))
  from holdfast.cycle c
 where c.name = any (array (select n from json_array_elements_text(:names::json) n));

-- name: cycle_list
-- Every cycle, and who runs it now.
select c.name, c.schedule, c.zone, c.singleton, c.missed, c.paused, c.paused_by, holdfast.us(c.paused_at), holdfast.us(c.last_slot),
       s.slot, r.worker_id, holdfast.us(s.expires_at)
  from holdfast.cycle c
  left join holdfast.cycle_slot s on s.cycle = c.name and s.state = 'running' and s.expires_at > holdfast.moment(:now::bigint)
  left join holdfast.worker_runs r on r.id = s.run_id
 order by c.name;

-- name: cycle_pause
-- Pauses or resumes a cycle with all its shards. A resumed one does not make up for what the pause left out.
update holdfast.cycle c
   set paused = :paused::boolean, paused_by = case when :paused::boolean then :by end,
       paused_at = case when :paused::boolean then holdfast.moment(:now::bigint) end,
       last_slot = case when c.paused and not :paused::boolean then greatest(c.last_slot, holdfast.moment(:now::bigint)) else c.last_slot end
 where c.name = :name or starts_with(c.name, :name || ':')
returning c.name;

-- name: cycle_request
-- Asks for a run now, of the cycle or of each of its shards.
insert into holdfast.cycle_slot (cycle, slot, due_at, state)
select c.name, :slot, holdfast.moment(:now::bigint), 'pending'
  from holdfast.cycle c
 where c.name = :name or starts_with(c.name, :name || ':')
returning cycle;

-- name: cycle_lock
-- Makes claims of one cycle's slots wait for one another, so that the claim after it sees every slot that runs. It waits on
-- purpose, unlike the claim of jobs: there is one row by this name, and skipping it would be an answer that is not known yet.
select name from holdfast.cycle where name = :cycle for update;

-- name: cycle_advance
update holdfast.cycle
   set last_slot = greatest(last_slot, to_timestamp(:due_at::bigint / 1000000.0))
 where name = :cycle;

-- name: slot_claim
-- Takes a slot for one run: a new one, a request, one whose run failed and has rested, or one whose process died. Refused
-- when the slot has been decided, the cycle is paused, or another slot of the cycle is running. The caller holds the
-- cycle's row.
insert into holdfast.cycle_slot as s (cycle, slot, due_at, token, run_id, runs, state, expires_at)
select c.name, :slot, to_timestamp(:due_at::bigint / 1000000.0), :token::uuid, :run_id::uuid, 1, 'running',
       holdfast.moment(:now::bigint) + :lease_ms::bigint * interval '1 ms'
  from holdfast.cycle c
 where c.name = :cycle
   and (:requested::boolean or (not c.paused and c.last_slot < to_timestamp(:due_at::bigint / 1000000.0)))
   and not exists (
     select from holdfast.cycle_slot o
      where o.cycle = c.name and o.slot <> :slot and o.state = 'running' and o.expires_at > holdfast.moment(:now::bigint))
on conflict (cycle, slot) do update
   set token = excluded.token, run_id = excluded.run_id, runs = s.runs + 1, state = 'running', expires_at = excluded.expires_at,
       finished_at = null
 where s.state = 'pending' or (s.state in ('running', 'failed') and s.expires_at <= holdfast.moment(:now::bigint))
returning runs;

-- name: slot_abandon
-- Slots that a dead process left running and that a newer one supersedes will not be run any more.
update holdfast.cycle_slot
   set state = 'failed', expires_at = null, finished_at = holdfast.moment(:now::bigint)
 where cycle = :cycle and slot <> :slot and state = 'running' and expires_at <= holdfast.moment(:now::bigint)
returning slot;

-- name: slot_renew
-- Extends a running slot by its token. One that expired but that nobody took may be renewed: nobody else has its token.
update holdfast.cycle_slot
   set expires_at = holdfast.moment(:now::bigint) + :lease_ms::bigint * interval '1 ms'
 where cycle = :cycle and slot = :slot and token = :token::uuid and state = 'running'
returning slot;

-- name: slot_fence
-- Proves, as the last statement of a transaction, that its run still holds the slot; a process that wants to take the slot over
-- waits for the commit.
select slot from holdfast.cycle_slot
 where cycle = :cycle and slot = :slot and token = :token::uuid and state = 'running'
   for share;

-- name: slot_finish
-- Ends a run of a slot by its token; repeated after an unknown commit it answers the same. A failed slot may be claimed
-- again once its pause is over, without a pause it may not.
update holdfast.cycle_slot
   set state = :state, finished_at = holdfast.moment(:now::bigint),
       expires_at = holdfast.moment(:now::bigint) + :pause_ms::bigint * interval '1 ms'
 where cycle = :cycle and slot = :slot and token = :token::uuid and state in ('running', :state)
returning slot;

-- name: run_begin
insert into holdfast.worker_runs (id, worker_name, worker_id, slot, started_at, seen_at, counters)
values (:id::uuid, :name, :worker, :slot, holdfast.moment(:now::bigint), holdfast.moment(:now::bigint), '{}')
returning holdfast.us(started_at);

-- name: run_touch
update holdfast.worker_runs set seen_at = holdfast.moment(:now::bigint), counters = coalesce(:counters, counters)
 where id = :id::uuid and finished_at is null;

-- name: run_finish
-- Ends a run unless it was found dead before.
update holdfast.worker_runs
   set finished_at = holdfast.moment(:now::bigint), seen_at = holdfast.moment(:now::bigint), outcome = :outcome, counters = :counters,
       error_message = :error
 where id = :id::uuid and finished_at is null
returning holdfast.us(finished_at);

-- name: run_mark_crashed
-- Ends the runs of a slot that can no longer end by themselves.
update holdfast.worker_runs
   set finished_at = seen_at, outcome = 'crashed', error_message = 'the process died, or lost the slot'
 where worker_name = :name and slot = any (array (select s from json_array_elements_text(:slots::json) s))
   and id <> :id::uuid and finished_at is null
returning id::text;

-- fragment: run_columns
-- The fields of `RunRecord`, in their order. A run that has given no sign for a while and has not ended belongs to a dead
-- process.
id::text, worker_name, worker_id, slot, holdfast.us(started_at), holdfast.us(seen_at), holdfast.us(finished_at),
       case when finished_at is not null then outcome
            when seen_at <= holdfast.moment(:now::bigint) - :grace_ms::bigint * interval '1 ms' then 'crashed' else 'running' end,
       counters, error_message

-- name: run_list
-- The last runs of everything.
select {run_columns}
  from holdfast.worker_runs r
 order by r.id desc
 limit :limit::integer;

-- name: run_list_of
-- The last runs of one cycle, or of ticks.
select {run_columns}
  from holdfast.worker_runs r
 where r.worker_name = :name
 order by r.started_at desc, r.id desc
 limit :limit::integer;
