-- name: effects_create
-- What handlers write in the transaction that completes their job. Nothing keeps a second row out: it would hide what is looked for.
create table chaos_effect (
  job_id  text not null,
  fence   integer not null,
  at      text not null default current_timestamp
);

-- name: effect_add
insert into chaos_effect (job_id, fence) values (:job, :fence);

-- name: effects
select job_id, fence from chaos_effect;

-- name: reaps
select job_id, fence, ended_at from holdfast_attempt where kind = 'reap';

-- name: jobs
select j.id, j.chain_id, j.chain_index, j.type, o.state, coalesce(o.fence, q.fence, 0)
  from holdfast_job j
  left join holdfast_outcome o on o.job_id = j.id
  left join holdfast_queue q on q.job_id = j.id;

-- name: progress
-- How many jobs have ended, and how many have not.
select (select count(*) from holdfast_outcome), (select count(*) from holdfast_queue);
