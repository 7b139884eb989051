-- Which large values rows name. Each statement walks along a key, page by page, and returns where the page ends and the
-- references in it. A payload is a reference only if it is short.

-- fragment: is_reference
-- Sealed payloads are returned as well: the reader tells them apart.
length(p.text) < 600 and substr(p.text, 1, 10) in ('{"$large":', '{"$sealed"')

-- name: large_value_revisions
with page as (
  select distinct r.job_id from holdfast_revision r where r.job_id > :after order by r.job_id limit :limit)
select (select max(g.job_id) from page g),
       (select json_group_array(p.text)
          from (select r.input as text from page g cross join holdfast_revision r on r.job_id = g.job_id) p
         where {is_reference});

-- name: large_value_inputs
with page as (
  select j.id, j.input as text from holdfast_job j where j.id > :after order by j.id limit :limit)
select (select max(g.id) from page g), (select json_group_array(p.text) from page p where {is_reference});

-- name: large_value_outputs
with page as (
  select o.job_id, o.output as text from holdfast_outcome o where o.job_id > :after order by o.job_id limit :limit)
select (select max(g.job_id) from page g), (select json_group_array(p.text) from page p where {is_reference});

-- name: large_value_steps
with page as (
  select distinct s.job_id from holdfast_step s where s.job_id > :after order by s.job_id limit :limit)
select (select max(g.job_id) from page g),
       (select json_group_array(p.text)
          from (select s.output as text from page g cross join holdfast_step s on s.job_id = g.job_id) p
         where {is_reference});

-- name: large_value_events
with page as (
  select e.line, e.place, e.data as text from holdfast_log e
   where (e.line, e.place) > (:line, :place) order by e.line, e.place limit :limit)
select (select json_array(g.line, g.place) from page g order by g.line desc, g.place desc limit 1),
       (select json_group_array(p.text) from page p where {is_reference});

-- name: large_value_parked
-- Events that wait for an operator are few.
select null, json_group_array(p.text)
  from (select e.data as text from holdfast_log_parked e) p
 where {is_reference};
