-- What a job is stands in a column of its own: whether it is debounced, and whether it keeps its place in an ordered line. Both are
-- empty where nobody has said so. What waits in a line has its time in `gate_at` and no `available_at`, so that nothing that looks
-- for due jobs sees it; of an ordered job `rests_until` is from when it may be tried.
alter table holdfast.job add column debounced boolean;
alter table holdfast.job alter column debounced set statistics 25;
alter table holdfast.queue add column ordered boolean;
alter table holdfast.queue alter column available_at drop not null;

-- What waits now, in batches. What a worker holds or somebody has locked is left out: it is read as it was written, and changes when
-- it is next moved.
update holdfast.queue q
   set available_at = case when q.gate_at is null then q.available_at end,
       ordered = q.rests_until is not null,
       rests_until = case when q.rests_until is not null then greatest(q.rests_until, coalesce(q.gate_at, now())) end
 where q.job_id = any (array (
   select w.job_id from holdfast.queue w
    where w.gate is not null and w.token is null and w.ordered is null
    limit 10000
      for no key update skip locked));
update holdfast.job j
   set debounced = true
 where j.id = any (array (
   select w.id from holdfast.job w
    where w.blockers < 0 and w.debounced is null
      and w.id = any (array (
        select q.job_id from holdfast.queue q union all select o.job_id from holdfast.outcome o where o.state = 'failed'))
    limit 10000
      for no key update skip locked));
