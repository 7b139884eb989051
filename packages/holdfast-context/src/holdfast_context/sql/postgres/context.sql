-- name: context_within
-- Which of these jobs were started in a context with this value.
select c.job_id::text
  from holdfast.job_context c
 where c.name = :context_name and c.value = :context_value
   and c.job_id = any (array (select i::uuid from json_array_elements_text(:ids::json) i));

-- name: context_names
-- The names of contexts that have this value, among the newest.
select distinct o.name
  from (select job_id from holdfast.job_context c
         where c.name = :context_name and c.value = :context_value
         order by c.job_id desc limit 100) recent
  join holdfast.job j on j.id = recent.job_id
 cross join lateral json_each_text(j.context::json) o(name, value);

-- name: context_ids_like
-- Ids that begin with these digits, or that end with them among the newest.
select id::text
  from (
    (select c.job_id as id from holdfast.job_context c
      where c.name = :context_name and c.value = :context_value and c.job_id between :first::uuid and :last::uuid
        and (not :chains::boolean or exists (select from holdfast.job j where j.id = c.job_id and j.chain_index = 0))
      order by c.job_id desc limit :limit::integer)
    union
    (select recent.job_id from (
        select c.job_id from holdfast.job_context c
         where c.name = :context_name and c.value = :context_value order by c.job_id desc limit :newest::integer) recent
      where right(replace(recent.job_id::text, '-', ''), length(:digits)) = :digits
        and (not :chains::boolean or exists (select from holdfast.job j where j.id = recent.job_id and j.chain_index = 0))
      limit :limit::integer)) found
 order by id desc
 limit :limit::integer;

-- name: context_dead_groups
-- As `dead_groups`, of what was started in a context with this value: of its newest jobs, ten times as many as the dead
-- letters that count are looked at.
select type, fingerprint, number, holdfast.us(oldest), holdfast.us(finished_at), job_id::text, error
  from (
    select r.*, count(*) over kind as number, min(r.finished_at) over kind as oldest,
           row_number() over (kind order by r.finished_at desc, r.job_id desc) as place
      from (
        select o.type, o.fingerprint, o.finished_at, o.job_id, o.error
          from (select c.job_id from holdfast.job_context c
                 where c.name = :context_name and c.value = :context_value
                 order by c.job_id desc limit :look::integer * 10) mine
          join holdfast.outcome o on o.job_id = mine.job_id
         where o.state = 'failed'
         order by o.finished_at desc, o.job_id desc
         limit :look::integer) r
    window kind as (partition by r.type, r.fingerprint)) counted
 where place = 1
 order by number desc, type, fingerprint
 limit :limit::integer;
