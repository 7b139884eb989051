-- name: dead_groups
-- The newest dead letters by type and kind of error, each group with its newest, the largest group first. Only :look of
-- them are looked at, along the index of what did not complete, so that a flood cannot slow the question down.
select type, fingerprint, number, holdfast.us(oldest), holdfast.us(finished_at), job_id::text, error
  from (
    select r.*, count(*) over kind as number, min(r.finished_at) over kind as oldest,
           row_number() over (kind order by r.finished_at desc, r.job_id desc) as place
      from (
        select o.type, o.fingerprint, o.finished_at, o.job_id, o.error
          from holdfast.outcome o
         where o.state = 'failed'
         order by o.finished_at desc, o.job_id desc
         limit :look::integer) r
    window kind as (partition by r.type, r.fingerprint)) counted
 where place = 1
 order by number desc, type, fingerprint
 limit :limit::integer;
