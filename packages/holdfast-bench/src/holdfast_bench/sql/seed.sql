-- Rows beside the measured ones, in our own tables.

-- name: seed_empty
truncate holdfast.job, holdfast.queue, holdfast.lease, holdfast.outcome, holdfast.tally, holdfast.blocker,
         holdfast.worker, holdfast.gate, holdfast.wakeup, holdfast.charge, holdfast.step, holdfast.signal;

-- name: seed_vacuum
vacuum analyze holdfast.job, holdfast.queue, holdfast.outcome;

-- name: seed_finished
with made as (
  insert into holdfast.job (id, chain_id, chain_index, type, input, priority, blockers, created_at)
  select id, id, 0, 'done', %(input)s, 5, 0, now()
    from (select uuidv7() as id from generate_series(1, %(count)s)) made
  returning id, type)
insert into holdfast.outcome (job_id, type, state, attempts, crashes, fence, token, worker, started_at, finished_at)
select id, type, 'completed', 1, 0, 1, id, 'elsewhere', now(), now() from made;

-- name: seed_old
-- Jobs that ended forty days ago, past the retention of a worker at its defaults; ids in the order of their numbers.
with made as (
  insert into holdfast.job (id, chain_id, chain_index, type, input, priority, blockers, created_at)
  select id, id, 0, 'old', %(input)s, 5, 0, ended_at
    from (select now() - interval '40 days' as ended_at) old
   cross join lateral (
     select (lpad(to_hex((extract(epoch from ended_at) * 1000)::bigint), 12, '0') || '70008000' || lpad(to_hex(n), 12, '0'))::uuid as id
       from generate_series(1, %(count)s) n) made
  returning id, type, created_at)
insert into holdfast.outcome (job_id, type, state, attempts, crashes, fence, token, worker, started_at, finished_at)
select id, type, 'completed', 1, 0, 1, id, 'elsewhere', created_at, created_at from made;

-- name: seed_old_ids
select min(id::text), max(id::text) from holdfast.job where type = 'old';

-- name: is_there
select 1 from holdfast.job where id = %s;

-- name: seed_waiting
with made as (
  insert into holdfast.job (id, chain_id, chain_index, type, input, priority, blockers, created_at)
  select id, id, 0, %(type)s, %(input)s, 5, 0, now()
    from (select uuidv7() as id from generate_series(1, %(count)s)) made
  returning id, type)
insert into holdfast.queue (job_id, type, priority, available_at)
select id, type, 5, now() + %(after)s::interval from made;

-- name: seed_in_flight
with made as (
  insert into holdfast.job (id, chain_id, chain_index, type, input, priority, blockers, created_at)
  select id, id, 0, %(type)s, %(input)s, 5, 0, now()
    from (select uuidv7() as id from generate_series(1, %(count)s)) made
  returning id, type),
queued as (
  insert into holdfast.queue (job_id, type, priority, available_at, attempt, fence, token)
  select id, type, 5, now(), 1, 1, %(token)s from made)
insert into holdfast.lease (token, worker, claimed_at, expires_at, lease_ms, max_attempts, backoff_base_ms,
                            backoff_cap_ms, job_ids)
select %(token)s, 'elsewhere', now(), now() + interval '1 day', 86400000, 25, 10000, 300000, array_agg(id) from made;

-- name: seed_parked
-- Functions that wait for a signal, each for one of its own: the key is its number.
with made as (
  insert into holdfast.job (id, chain_id, chain_index, type, input, priority, blockers, created_at)
  select id, id, 0, %(type)s, %(input)s, 5, 0, now()
    from (select uuidv7() as id from generate_series(1, %(count)s)) made
  returning id, type),
queued as (
  insert into holdfast.queue (job_id, type, priority, available_at, fence, steps, woken)
  select id, type, 5, 'infinity', 1, true, false from made)
insert into holdfast.step (job_id, name, key, nth, position, kind, state, undo, fence, started_at, signal, signal_key)
select id, 'wait:approved', number::text, 1, 1, 'wait', 'open', false, 1, now(), 'approved', number::text
  from (select id, row_number() over () as number from made) numbered;

-- name: seed_parked_vacuum
vacuum analyze holdfast.job, holdfast.queue, holdfast.step, holdfast.signal;

-- name: park_again
-- As before the signal to one of them came.
with forgotten as (delete from holdfast.signal)
update holdfast.queue set available_at = 'infinity', woken = false
 where job_id = (select job_id from holdfast.step where signal = 'approved' and signal_key = %s and state = 'open' and kind = 'wait');

-- name: uuidv7
-- Servers before 18 do not make these ids themselves; only rows beside the measured ones need them.
create function public.uuidv7() returns uuid language sql volatile return
  encode(set_byte(set_byte(overlay(uuid_send(gen_random_uuid())
    placing substring(int8send((extract(epoch from clock_timestamp()) * 1000)::bigint) from 3) from 1 for 6),
    6, 112 + (random() * 15)::int), 8, 128 + (random() * 63)::int), 'hex')::uuid;

-- name: queue_count
select count(*) from holdfast.queue;
