-- The rows of a start, written by hand into our tables.

-- name: hand_one
with written as (
  insert into holdfast.job (id, chain_id, chain_index, type, input, priority, blockers, created_at)
  values (%(id)s::uuid, %(id)s::uuid, 0, %(type)s, %(input)s, 5, 0, now())),
queued as (
  insert into holdfast.queue (job_id, type, priority, available_at) values (%(id)s::uuid, %(type)s, 5, now()))
insert into holdfast.tally (at, type, started) values (now(), %(type)s, 1);

-- name: hand_unnest
with written as (
  insert into holdfast.job (id, chain_id, chain_index, type, input, priority, blockers, created_at)
  select id, id, 0, %(type)s, input, 5, 0, now()
    from unnest(%(ids)s::uuid[], %(inputs)s::text[]) as given (id, input)
  returning id),
queued as (
  insert into holdfast.queue (job_id, type, priority, available_at) select id, %(type)s, 5, now() from written)
insert into holdfast.tally (at, type, started) values (now(), %(type)s, %(count)s);

-- name: hand_copy_job
copy holdfast.job (id, chain_id, chain_index, type, input, priority, blockers, created_at) from stdin;

-- name: hand_copy_queue
copy holdfast.queue (job_id, type, priority, available_at) from stdin;

-- name: hand_tally
insert into holdfast.tally (at, type, started) values (now(), %s, %s);

-- name: hand_sqlite_job
insert into holdfast_job (id, chain_id, chain_index, type, input, priority, blockers, created_at)
values (?, ?, 0, 'noop', ?, 5, 0, ?);

-- name: hand_sqlite_queue
insert into holdfast_queue (job_id, type, priority, available_at) values (?, 'noop', 5, ?);

-- name: hand_sqlite_tally
insert into holdfast_tally (at, type, started) values (?, 'noop', ?);
