-- A day of jobs as rows of our tables: by COPY into PostgreSQL, row by row into SQLite.

-- name: copy_job
copy holdfast.job (id, chain_id, chain_index, type, input, priority, blockers, created_at) from stdin;

-- name: copy_queue
copy holdfast.queue (job_id, type, priority, available_at, attempt, fence, token) from stdin;

-- name: copy_outcome
copy holdfast.outcome (job_id, type, state, continued, output, error, fingerprint, attempts,
  crashes, fence, worker, started_at, finished_at) from stdin;

-- name: copy_attempt
copy holdfast.attempt (job_id, fence, attempt, kind, worker, started_at, ended_at, error) from stdin;

-- name: copy_blocker
copy holdfast.blocker (job_id, position, chain_id, on_failure, open) from stdin;

-- name: copy_lease
copy holdfast.lease (token, worker, claimed_at, expires_at, lease_ms, max_attempts,
  backoff_base_ms, backoff_cap_ms, job_ids) from stdin;

-- name: copy_tally
copy holdfast.tally (at, type, started, completed, failed, cancelled) from stdin;

-- name: copy_worker
copy holdfast.worker (id, name, host, pid, version, slots, types, started_at, seen_at, counters) from stdin;

-- name: insert_job
insert into holdfast_job (id, chain_id, chain_index, type, input, priority, blockers, created_at)
values (?, ?, ?, ?, ?, ?, ?, ?);

-- name: insert_queue
insert into holdfast_queue (job_id, type, priority, available_at, attempt, fence, token)
values (?, ?, ?, ?, ?, ?, ?);

-- name: insert_outcome
insert into holdfast_outcome (job_id, type, state, continued, output, error, fingerprint, attempts,
  crashes, fence, worker, started_at, finished_at)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: insert_attempt
insert into holdfast_attempt (job_id, fence, attempt, kind, worker, started_at, ended_at, error)
values (?, ?, ?, ?, ?, ?, ?, ?);

-- name: insert_blocker
insert into holdfast_blocker (job_id, position, chain_id, on_failure, open)
values (?, ?, ?, ?, ?);

-- name: insert_lease
insert into holdfast_lease (token, worker, claimed_at, expires_at, lease_ms, max_attempts,
  backoff_base_ms, backoff_cap_ms, job_ids)
values (?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: insert_tally
insert into holdfast_tally (at, type, started, completed, failed, cancelled)
values (?, ?, ?, ?, ?, ?);

-- name: insert_worker
insert into holdfast_worker (id, name, host, pid, version, slots, types, started_at, seen_at, counters)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?);
