-- name: output_append
-- Appends batches, each proven by its (job, token) pair; the write lock is held. What is not returned was not written. A batch that is
-- there already, because the answer to its first writing was lost, is returned as well.
insert into holdfast_output (chain_id, last, first, job_id, epoch, step, data, at)
select json_extract(x.value, '$.chain_id'), json_extract(x.value, '$.last'), json_extract(x.value, '$.first'), q.job_id,
       json_extract(x.value, '$.epoch'), json_extract(x.value, '$.step'), json_extract(x.value, '$.data'), {now}
  from json_each(:rows) x
 cross join holdfast_queue q on q.job_id = json_extract(x.value, '$.job_id') and q.token = json_extract(x.value, '$.token')
 where true
on conflict (chain_id, last) do update set at = holdfast_output.at
   where holdfast_output.job_id = excluded.job_id and holdfast_output.epoch = excluded.epoch
returning chain_id, last;

-- name: output_tail
-- The last number along a chain, and the newest epoch of one of its jobs.
select coalesce(max(o.last), 0), coalesce(max(o.epoch) filter (where o.job_id = :job), 0)
  from holdfast_output o
 where o.chain_id = :chain;

-- name: output_said
-- What an epoch of a job has, by the step that said it: items and bytes.
select o.step, sum(o.last - o.first + 1), sum(length(cast(o.data as blob)))
  from holdfast_output o
 where o.chain_id = :chain and o.job_id = :job and o.epoch = :epoch
 group by o.step;

-- fragment: is_live_output
-- Whether the job bears the token.
exists (select 1 from holdfast_queue q where q.job_id = :job and q.token = :token)

-- name: output_trim
-- Removes the epochs of a job before the last two.
delete from holdfast_output where chain_id = :chain and job_id = :job and epoch < :epoch - 1 and {is_live_output};

-- name: output_void
-- Removes what a step said that is run again.
delete from holdfast_output
 where chain_id = :chain and job_id = :job and epoch = :epoch and step = :step and {is_live_output};

-- name: output_carry
-- Makes what is left of an epoch the beginning of the next one, numbered behind all there is.
update holdfast_output set epoch = epoch + 1, first = first + :shift, last = last + :shift
 where chain_id = :chain and job_id = :job and epoch = :epoch and {is_live_output};

-- name: output_epochs
-- The newest epoch of each job of chains.
select o.job_id, max(o.epoch)
  from holdfast_output o
 where o.chain_id in (select value from json_each(:chains))
 group by o.job_id;

-- name: output_read
-- The next batches of chains behind a number of each; rows are [chain, number]. The limit is that of all chains together.
select o.chain_id, o.last, o.first, o.job_id, o.epoch, o.data
  from json_each(:wanted) w
 cross join holdfast_output o on o.chain_id = json_extract(w.value, '$[0]') and o.last > json_extract(w.value, '$[1]')
 order by o.chain_id, o.last
 limit :limit;

-- name: output_recent
-- The last batches of a job's newest epoch, newest first, up to some bytes and one batch more.
select r.chain_id, r.last, r.first, r.job_id, r.epoch, r.data
  from (
    select o.*, sum(length(cast(o.data as blob))) over (order by o.last desc) - length(cast(o.data as blob)) as newer
      from (
        select * from holdfast_output b
         where b.chain_id = :chain and b.job_id = :job
           and b.epoch = (select max(e.epoch) from holdfast_output e where e.chain_id = :chain and e.job_id = :job)
         order by b.last desc
         limit :limit) o) r
 where r.newer < :bytes
 order by r.last desc;
