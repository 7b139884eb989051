-- The index of the lines serves no look-up by id. Where vacuum had just found the queue empty, both indexes seemed to cost the
-- same, and a plan that took this one read it whole for every job. Its condition follows from any comparison of the type.
create index queue_line on holdfast.queue (type, priority, available_at, job_id) where type is not null;
drop index holdfast.queue_claim;
