-- The version of a live job's input, where claims see it: a worker leaves what is newer than it reads to those that read it. Null is 1,
-- so live rows and signals of unversioned types are as before. A claim changes nothing that the index has.
alter table holdfast_queue add column version integer;
create index holdfast_queue_version on holdfast_queue (type, version, priority, available_at, job_id) where version is not null;
alter table holdfast_wakeup add column version integer;

-- Up to which version a worker reads the inputs of its versioned types: a JSON object. Null in those of the version before, which take
-- what they cannot read and put it back.
alter table holdfast_worker add column reads text;
