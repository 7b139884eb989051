-- Whether the worker ran nothing but this lease's one job: only then does its death say anything about the job. A worker that
-- does not know of this never says so, and its death makes a job suspect, but not guilty.
alter table holdfast_lease add column alone integer not null default 0;
