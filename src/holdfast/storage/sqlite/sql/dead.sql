-- name: dead_groups
-- The youngest dead letters by type and kind of error, each group with its youngest, the largest group first. Only :look of
-- them are looked at, along the index of what did not complete, so that a flood cannot slow the question down; the condition
-- of that index has to be said in its own words.
select type, fingerprint, number, oldest, finished_at, job_id, error
  from (
    select r.*, count(*) over kind as number, min(r.finished_at) over kind as oldest,
           row_number() over (kind order by r.finished_at desc, r.job_id desc) as place
      from (
        select o.type, o.fingerprint, o.finished_at, o.job_id, o.error
          from holdfast_outcome o
         where o.state in ('failed', 'cancelled') and o.state = 'failed'
         order by o.finished_at desc, o.job_id desc
         limit :look) r
    window kind as (partition by r.type, r.fingerprint))
 where place = 1
 order by number desc, type, fingerprint is null, fingerprint
 limit :limit;
