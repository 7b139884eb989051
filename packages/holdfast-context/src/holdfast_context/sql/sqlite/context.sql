-- name: context_within
-- Which of these jobs were started in a context with this value.
select c.job_id
  from json_each(:ids) i
  cross join holdfast_job_context c on c.name = :context_name and c.value = :context_value and c.job_id = i.value;

-- name: context_names
-- The names of contexts that have this value, among the newest.
select distinct o.key
  from (select job_id from holdfast_job_context
         where name = :context_name and value = :context_value
         order by job_id desc limit 100) recent
  cross join holdfast_job j on j.id = recent.job_id
  cross join json_each(j.context) o;

-- name: context_ids_like
-- Ids that begin with these digits, or that end with them among the newest.
select id
  from (
    select * from (
      select c.job_id as id from holdfast_job_context c
       where c.name = :context_name and c.value = :context_value and c.job_id between :first and :last
         and (not :chains or exists (select 1 from holdfast_job j where j.id = c.job_id and j.chain_index = 0))
       order by c.job_id desc limit :limit)
    union
    select * from (
      select recent.job_id from (
          select c.job_id from holdfast_job_context c
           where c.name = :context_name and c.value = :context_value order by c.job_id desc limit :newest) recent
       where substr(replace(recent.job_id, '-', ''), -length(:digits)) = :digits
         and (not :chains or exists (select 1 from holdfast_job j where j.id = recent.job_id and j.chain_index = 0))
       limit :limit))
 order by id desc
 limit :limit;

-- name: context_dead_groups
-- As `dead_groups`, of what was started in a context with this value: of its newest jobs, ten times as many as the dead
-- letters that count are looked at.
with looked as (
  select o.type, o.fingerprint, o.finished_at, o.job_id
    from (select job_id from holdfast_job_context
           where name = :context_name and value = :context_value
           order by job_id desc limit :look * 10) mine
    cross join holdfast_outcome o on o.job_id = mine.job_id
   where o.state = 'failed'
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
