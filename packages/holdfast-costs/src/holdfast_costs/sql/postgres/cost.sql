-- name: cost_usage
-- What partitions use: all of a type by key, or those given. Charged within the period, and running.
select g.id, coalesce(c.charged, 0)::bigint, coalesce(r.running, 0)::bigint
  from (
    select n.id from holdfast.gate n
     where n.turn = 0
       and (n.id = any (array (select json_array_elements_text(:ids::json)))
            or (:type::text is not null and n.id > :type || '#' and n.id < :type || '$'))
     order by n.id
     limit :limit::integer) g
  left join lateral (
    select sum(c.cost) as charged from holdfast.charge c
     where c.gate = g.id and c.at > holdfast.us(holdfast.moment(:now::bigint)) - :period_ms::bigint * 1000) c on true
  left join lateral (
    select sum(coalesce(j.cost, 1)) as running
      from (select h.holders from holdfast.gate h where h.id = g.id and h.turn > 0 order by h.turn desc limit 1) h
      join holdfast.queue q on q.job_id = any (h.holders) and q.token is not null
      join holdfast.job j on j.id = q.job_id) r on true;

-- name: cost_steps
select c.at, c.cost from holdfast.charge c where c.gate = :gate order by c.at, c.step;

-- name: cost_of_job
select coalesce(j.cost, 1), q.gate, q.spent
  from holdfast.job j left join holdfast.queue q on q.job_id = j.id
 where j.id = :id::uuid;

-- name: cost_settle
-- What an attempt spent in truth takes the place of its cost in the steps in which it was charged, as long as they count; rows are the
-- partitions, [gate, step, period_ms]. The last word of an attempt counts. What is given back may let others in.
with mine as (
  select q.job_id, q.type, q.priority, q.gate, coalesce(q.spent, j.cost, 1) as cost
    from holdfast.queue q join holdfast.job j on j.id = q.job_id
   where q.job_id = :id::uuid and q.token = :token::uuid
     for update of q),
said as (
  update holdfast.queue q set spent = :spent::integer where q.job_id = (select job_id from mine)),
settled as (
  insert into holdfast.charge as c (gate, step, at, cost)
  select x.gate, :at::bigint / x.step, :at::bigint, :spent::bigint - m.cost
    from mine m cross join json_to_recordset(:rows::json) as x(gate text, step bigint, period_ms bigint)
   where :at::bigint > holdfast.us(holdfast.moment(:now::bigint)) - x.period_ms * 1000 and m.cost <> :spent::bigint
   order by x.gate
  on conflict (gate, step) do update set cost = greatest(0, c.cost + excluded.cost)),
signalled as (
  insert into holdfast.wakeup (type, priority, at, gate)
  select type, priority, holdfast.moment(:now::bigint), gate from mine where cost > :spent::bigint and gate is not null)
select count(*) from mine;
