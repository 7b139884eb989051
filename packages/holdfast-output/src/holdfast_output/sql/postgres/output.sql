-- name: output_append
-- Appends batches, each proven by its (job, token) pair in the statement itself. The live rows are locked until the commit, so that no
-- other worker takes a job over who cannot see what its earlier attempt has said. A row that somebody else has locked is left out, as one
-- is that does not bear the token: what is not returned was not written. A batch that is there already, because the answer to its first
-- writing was lost, is returned as well.
with given as materialized (
  select * from json_to_recordset(:rows::json) as x(
    chain_id uuid, job_id uuid, token uuid, first bigint, last bigint, epoch integer, step text, data text)),
live as materialized (
  select q.job_id, q.token from holdfast.queue q
   where q.job_id = any (array (select job_id from given)) and ((q.job_id, q.token) in (select job_id, token from given)) is true
     for share skip locked)
insert into holdfast.output as o (chain_id, last, first, job_id, epoch, step, data, at)
select g.chain_id, g.last, g.first, g.job_id, g.epoch, g.step, g.data, holdfast.moment(:now::bigint)
  from given g join live l on l.job_id = g.job_id and l.token = g.token
on conflict (chain_id, last) do update set at = o.at where o.job_id = excluded.job_id and o.epoch = excluded.epoch
returning o.chain_id::text, o.last;

-- name: output_tail
-- The last number along a chain, and the newest epoch of one of its jobs.
select coalesce(max(o.last), 0)::bigint, coalesce(max(o.epoch) filter (where o.job_id = :job::uuid), 0)::integer
  from holdfast.output o
 where o.chain_id = :chain::uuid;

-- name: output_said
-- What an epoch of a job has, by the step that said it: items and bytes.
select o.step, sum(o.last - o.first + 1)::bigint, sum(octet_length(o.data))::bigint
  from holdfast.output o
 where o.chain_id = :chain::uuid and o.job_id = :job::uuid and o.epoch = :epoch::integer
 group by o.step;

-- fragment: live_of_output
-- The live row of the job that bears the token, locked until the commit.
live as materialized (
  select q.job_id from holdfast.queue q where q.job_id = :job::uuid and q.token = :token::uuid for share)

-- name: output_trim
-- Removes the epochs of a job before the last two.
with {live_of_output}
delete from holdfast.output o using live l
 where o.chain_id = :chain::uuid and o.job_id = l.job_id and o.epoch < :epoch::integer - 1;

-- name: output_void
-- Removes what a step said that is run again.
with {live_of_output}
delete from holdfast.output o using live l
 where o.chain_id = :chain::uuid and o.job_id = l.job_id and o.epoch = :epoch::integer and o.step = :step;

-- name: output_carry
-- Makes what is left of an epoch the beginning of the next one, numbered behind all there is.
with {live_of_output}
update holdfast.output o set epoch = o.epoch + 1, first = o.first + :shift::bigint, last = o.last + :shift::bigint
  from live l
 where o.chain_id = :chain::uuid and o.job_id = l.job_id and o.epoch = :epoch::integer;

-- name: output_epochs
-- The newest epoch of each job of chains.
select o.job_id::text, max(o.epoch)::integer
  from holdfast.output o
 where o.chain_id = any (array (select c::uuid from json_array_elements_text(:chains::json) c))
 group by o.job_id;

-- name: output_read
-- The next batches of chains behind a number of each; rows are [chain, number].
select o.chain_id::text, o.last, o.first, o.job_id::text, o.epoch, o.data
  from json_array_elements(:wanted::json) w
 cross join lateral (
   select * from holdfast.output r
    where r.chain_id = (w ->> 0)::uuid and r.last > (w ->> 1)::bigint
    order by r.last
    limit :limit::integer) o
 order by o.chain_id, o.last;

-- name: output_recent
-- The last batches of a job's newest epoch, newest first, up to some bytes and one batch more.
select r.chain_id::text, r.last, r.first, r.job_id::text, r.epoch, r.data
  from (
    select o.*, sum(octet_length(o.data)) over (order by o.last desc) - octet_length(o.data) as newer
      from (
        select * from holdfast.output b
         where b.chain_id = :chain::uuid and b.job_id = :job::uuid
           and b.epoch = (select max(e.epoch) from holdfast.output e where e.chain_id = :chain::uuid and e.job_id = :job::uuid)
         order by b.last desc
         limit :limit::integer) o) r
 where r.newer < :bytes::integer
 order by r.last desc;
