-- name: dead_groups
-- The newest dead letters by type and kind of error, each group with its newest, the largest group first. Only :look of
-- them are looked at, along the index of what did not complete, so that a flood cannot slow the question down; the condition
-- of that index has to be said in its own words. Windows would cost three times as much as this grouping, whose newest is the
-- largest of time and id in one text.
with looked as (
  select o.type, o.fingerprint, o.finished_at, o.job_id
    from holdfast_outcome o
   where o.state in ('failed', 'cancelled') and o.state = 'failed'
   order by o.finished_at desc, o.job_id desc
   limit :look),
kind as (
  select type, fingerprint, count(*) as number, min(finished_at) as oldest,
         max(printf('%020d', finished_at) || job_id) as newest
    from looked
   group by type, fingerprint)
select k.type, k.fingerprint, k.number, k.oldest, o.finished_at, o.job_id, o.error
  from kind k
  cross join holdfast_outcome o on o.job_id = substr(k.newest, 21)
 order by k.number desc, k.type, k.fingerprint is null, k.fingerprint
 limit :limit;
