-- Written once for both dialects: SQLite's names have an underscore where PostgreSQL's have a dot.

-- name: is_marked_postgresql
select 1 where to_regclass('holdfast.test_kit') is not null;

-- name: is_marked_sqlite
select 1 from sqlite_master where name = 'holdfast_test_kit';

-- name: has_jobs
select 1 from holdfast.job limit 1;

-- name: mark
create table holdfast.test_kit (emptied_before_each_test integer);

-- name: clear
update holdfast.identity set paused = false, paused_by = null, paused_at = null where paused;
delete from holdfast.queue;
delete from holdfast.charge;
delete from holdfast.wakeup;
delete from holdfast.gate;
delete from holdfast.limit_setting;
delete from holdfast.lease;
delete from holdfast.outcome;
delete from holdfast.attempt;
delete from holdfast.progress;
delete from holdfast.failing;
delete from holdfast.on_failed;
delete from holdfast.revision;
delete from holdfast.unreadable;
delete from holdfast.redrive_job;
delete from holdfast.redrive;
delete from holdfast.step;
delete from holdfast.signal;
delete from holdfast.blocker;
delete from holdfast.chain_key;
delete from holdfast.output;
delete from holdfast.keep;
delete from holdfast.job;
delete from holdfast.job_context;
delete from holdfast.subscription;
delete from holdfast.type_setting;
delete from holdfast.worker;
delete from holdfast.worker_runs;
delete from holdfast.cycle_slot;
delete from holdfast.cycle;
delete from holdfast.tally;
delete from holdfast.archive_manifest;
delete from holdfast.audit;
delete from holdfast.api_token;
delete from holdfast.log;
delete from holdfast.log_parked;
delete from holdfast.log_member;
delete from holdfast.log_position;
delete from holdfast.log_pattern;
delete from holdfast.log_reader;
delete from holdfast.inbox_seen;
delete from holdfast.inbox_parked;
delete from holdfast.inbox_line;
delete from holdfast.inbox_member;
delete from holdfast.inbox;
delete from holdfast.schedule_slot;
delete from holdfast.schedule;
delete from holdfast.schedule_context;
