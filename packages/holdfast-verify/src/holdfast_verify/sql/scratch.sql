-- What is known of an archive while it is checked, in a temporary SQLite file: it may be more than fits into memory.

-- name: scratch_places
create table place (chain text, number integer, job text, primary key (chain, number, job)) without rowid;

-- name: scratch_jobs
create table job (id text primary key) without rowid;

-- name: scratch_ends
create table ended (job text, fence integer, primary key (job, fence)) without rowid;

-- name: scratch_parts
create table part (source text, job text, fence integer, primary key (source, job)) without rowid;

-- name: scratch_sames
-- Jobs whose outcome is in the database as in the archive.
create table same (job text primary key) without rowid;

-- name: scratch_explanations
-- Jobs that an archive has as failed and that the database has so, too, or as redriven since.
create table explained (job text primary key) without rowid;

-- name: scratch_differences
create table differing (job text, text text, primary key (job, text)) without rowid;

-- name: scratch_put_place
insert or ignore into place values (?, ?, ?);

-- name: scratch_put_job
insert or ignore into job values (?);

-- name: scratch_put_end
insert or ignore into ended values (?, ?);

-- name: scratch_put_part
insert into part values (?, ?, ?) on conflict do update set fence = max(fence, excluded.fence);

-- name: scratch_put_same
insert or ignore into same values (?);

-- name: scratch_put_explained
insert or ignore into explained values (?);

-- name: scratch_put_differing
insert or ignore into differing values (?, ?);

-- name: scratch_same
select job from same where job in (select value from json_each(?));

-- name: scratch_forget_jobs
delete from job;

-- name: scratch_forget_ends
delete from ended;

-- name: scratch_forget_parts
delete from part;

-- name: scratch_forget_sames
delete from same;

-- name: scratch_torn
select j.id, 'it has no outcome' from job j where not exists (select 1 from ended e where e.job = j.id)
union all
select r.job, 'there is no such job, but a row of ' || r.source
  from (select source, job from part union all select 'outcome', job from ended) r
 where not exists (select 1 from job j where j.id = r.job)
 order by 1
 limit ?;

-- name: scratch_fences
select p.job, 'a row of ' || p.source || ' has the fence ' || p.fence || ', the job ' || e.fence
  from part p join ended e on e.job = p.job
 where p.fence > e.fence
 order by p.job
 limit ?;

-- name: scratch_chains
select chain, 'it has ' || count(distinct job) || ' jobs in ' || count(distinct number) || ' places, numbered up to ' || (max(number) + 1)
  from place
 group by chain
having count(*) <> max(number) + 1 or count(distinct number) <> count(*) or count(distinct job) <> count(*) or min(number) <> 0
 order by chain
 limit ?;

-- name: scratch_disagreements
-- A job that failed, was archived, redriven and archived again is in the database as one of the two, if it was restored.
select d.job, d.text
  from differing d
 where not exists (select 1 from explained e where e.job = d.job)
 order by d.job
 limit ?;
