-- Which large values rows name. Each statement walks along a key, page by page, and returns where the page ends and the
-- references in it. A payload is a reference only if it is short, and that is known without reading a long one.

-- fragment: is_reference
-- Sealed payloads are returned as well: the reader tells them apart.
octet_length(p.text) < 600 and substr(p.text, 1, 10) in ('{"$large":', '{"$sealed"')

-- name: large_value_revisions
with page as (
  select distinct r.job_id from holdfast.revision r where r.job_id > :after::uuid order by r.job_id limit :limit::bigint)
select (select g.job_id::text from page g order by g.job_id desc limit 1),
       (select coalesce(json_agg(p.text), '[]')::text
          from (select r.input as text from holdfast.revision r join page g on g.job_id = r.job_id) p
         where {is_reference});

-- name: large_value_inputs
with page as (
  select j.id, j.input as text from holdfast.job j where j.id > :after::uuid order by j.id limit :limit::bigint)
select (select g.id::text from page g order by g.id desc limit 1),
       (select coalesce(json_agg(p.text), '[]')::text from page p where {is_reference});

-- name: large_value_outputs
with page as (
  select o.job_id, o.output as text from holdfast.outcome o
   where o.job_id > :after::uuid order by o.job_id limit :limit::bigint)
select (select g.job_id::text from page g order by g.job_id desc limit 1),
       (select coalesce(json_agg(p.text), '[]')::text from page p where {is_reference});

-- name: large_value_steps
with page as (
  select distinct s.job_id from holdfast.step s where s.job_id > :after::uuid order by s.job_id limit :limit::bigint)
select (select g.job_id::text from page g order by g.job_id desc limit 1),
       (select coalesce(json_agg(p.text), '[]')::text
          from (select s.output as text from holdfast.step s join page g on g.job_id = s.job_id) p
         where {is_reference});

-- name: large_value_events
with page as (
  select e.line, e.place, e.data as text from holdfast.log e
   where (e.line, e.place) > (:line::smallint, :place::bigint) order by e.line, e.place limit :limit::bigint)
select (select json_build_array(g.line, g.place)::text from page g order by g.line desc, g.place desc limit 1),
       (select coalesce(json_agg(p.text), '[]')::text from page p where {is_reference});

-- name: large_value_parked
-- Events that wait for an operator are few.
select null::text, coalesce(json_agg(p.text), '[]')::text
  from (select e.data as text from holdfast.log_parked e) p
 where {is_reference};
