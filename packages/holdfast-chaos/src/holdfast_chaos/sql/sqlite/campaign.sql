-- name: effects_create
-- What handlers write in the transaction that completes their job. Nothing keeps a second row out: it would hide what is looked for.
create table chaos_effect (
  job_id  text not null,
  fence   integer not null,
  at      text not null default current_timestamp
);

-- name: effect_add
insert into chaos_effect (job_id, fence) values (:job, :fence);

-- name: keys_create
-- The last number of each key: that of its last event, whose transaction holds the row's lock to its end.
create table chaos_key (
  key  text primary key,
  n    integer not null
);

-- name: key_next
insert into chaos_key as k (key, n) values (:key, 1) on conflict (key) do update set n = k.n + 1 returning n;

-- name: taken_create
-- What the consumer took, in its order, written in the transaction that moves its position. Nothing keeps a second row out.
create table chaos_taken (
  place  integer primary key,
  tag    text not null,
  key    text not null,
  n      integer not null
);

-- name: taken_add
insert into chaos_taken (tag, key, n) values (:tag, :key, :n);

-- name: taken
select tag, key, n from chaos_taken order by place;

-- name: keys
select key, n from chaos_key;

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
-- How many jobs have ended, and how many have not; how many events were taken, and how many are still to be. Asked all the time: the
-- ends are counted already, by the hundred thousand.
select (select coalesce(sum(completed + failed + cancelled), 0) from holdfast_tally), (select count(*) from holdfast_queue),
       t.n, (select coalesce(sum(k.n), 0) from chaos_key k) - t.n
  from (select count(*) as n from chaos_taken) t;
