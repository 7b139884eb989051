-- name: cost_usage
-- What partitions use: all of a type by key, or those given. Charged within the period, and running.
select g.id,
       coalesce((select sum(c.cost) from holdfast_charge c where c.gate = g.id and c.at > {now} - :period_ms * 1000), 0),
       coalesce((select sum(coalesce(j.cost, 1))
                   from json_each(g.holders) h
                  cross join holdfast_queue q on q.job_id = h.value
                  cross join holdfast_job j on j.id = q.job_id
                  where q.token is not null), 0)
  from holdfast_gate g
 where g.id in (select value from json_each(:ids)) or (:type is not null and g.id > :type || '#' and g.id < :type || '$')
 order by g.id
 limit :limit;

-- name: cost_steps
select at, cost from holdfast_charge where gate = :gate order by at, step;

-- name: cost_of_job
select coalesce(j.cost, 1), q.gate, q.spent
  from holdfast_job j left join holdfast_queue q on q.job_id = j.id
 where j.id = :id;

-- name: cost_settle
-- What an attempt spent in truth takes the place of its cost in the steps in which it was charged, as long as they count; rows are the
-- partitions. `cost_spent` follows, and what is given back may let others in.
insert into holdfast_charge (gate, step, at, cost)
select json_extract(x.value, '$.gate'), :at / json_extract(x.value, '$.step'), :at, :spent - coalesce(q.spent, j.cost, 1)
  from holdfast_queue q cross join holdfast_job j on j.id = q.job_id cross join json_each(:rows) x
 where q.job_id = :id and q.token = :token and :at > {now} - json_extract(x.value, '$.period_ms') * 1000
on conflict (gate, step) do update set cost = max(0, cost + excluded.cost);

-- name: cost_signal
insert into holdfast_wakeup (type, priority, at, gate)
select q.type, q.priority, {now}, q.gate
  from holdfast_queue q cross join holdfast_job j on j.id = q.job_id
 where q.job_id = :id and q.token = :token and q.gate is not null and :spent < coalesce(q.spent, j.cost, 1);

-- name: cost_spent
update holdfast_queue set spent = :spent where job_id = :id and token = :token returning 1;
