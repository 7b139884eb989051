-- Workers sweep up dead rows themselves; two things kept them from it for seconds. Autovacuum tries for five seconds to get the
-- lock that makes a table shorter, and meanwhile no other vacuum may begin.
alter table holdfast.queue set (vacuum_truncate = off);
alter table holdfast.lease set (vacuum_truncate = off);
alter table holdfast.tally set (vacuum_truncate = off);
alter table holdfast.gate set (vacuum_truncate = off);
alter table holdfast.wakeup set (vacuum_truncate = off);
-- And while a table is analysed, no dead row of the queue can be removed. Of a history of millions the default sample is 30,000
-- pages, which took seconds; a quarter is enough for what is asked of these columns, and no plan of ours depends on more.
alter table holdfast.job
  alter column id set statistics 25, alter column chain_id set statistics 25, alter column chain_index set statistics 25,
  alter column type set statistics 25, alter column input set statistics 25, alter column priority set statistics 25,
  alter column blockers set statistics 25, alter column max_attempts set statistics 25,
  alter column planned_at set statistics 25, alter column key set statistics 25, alter column trace set statistics 25,
  alter column created_at set statistics 25, alter column version set statistics 25;
alter table holdfast.outcome
  alter column job_id set statistics 25, alter column type set statistics 25, alter column state set statistics 25,
  alter column continued set statistics 25, alter column output set statistics 25, alter column error set statistics 25,
  alter column fingerprint set statistics 25, alter column attempts set statistics 25, alter column crashes set statistics 25,
  alter column fence set statistics 25, alter column token set statistics 25, alter column worker set statistics 25,
  alter column started_at set statistics 25, alter column finished_at set statistics 25,
  alter column gate set statistics 25, alter column gate_at set statistics 25;
alter table holdfast.attempt
  alter column job_id set statistics 25, alter column fence set statistics 25, alter column attempt set statistics 25,
  alter column kind set statistics 25, alter column worker set statistics 25, alter column started_at set statistics 25,
  alter column ended_at set statistics 25, alter column error set statistics 25;
