-- fragment: parked_columns
-- The fields of `ParkedEvent`, in their order.
reader, line, place, state, event, key, id::text, holdfast.us(at), error, attempts, holdfast.us(parked_at)

-- fragment: live_lease
p.expires_at > holdfast.moment(:now::bigint)

-- name: reader_register
-- Registers a reader, or notes that it was seen.
insert into holdfast.log_reader (name, kind, target, created_at, seen_at)
values (:reader, :kind, :target, holdfast.moment(:now::bigint), holdfast.moment(:now::bigint))
on conflict (name) do update set kind = excluded.kind, target = excluded.target, seen_at = excluded.seen_at;

-- name: reader_forget_patterns
delete from holdfast.log_pattern
 where reader = :reader and pattern <> all (array (select e from json_array_elements_text(:patterns::json) e));

-- name: reader_add_patterns
insert into holdfast.log_pattern (reader, pattern)
select :reader, e from json_array_elements_text(:patterns::json) e
on conflict do nothing;

-- name: reader_begin
-- Gives a new reader its position in each line: before the first event of an instant, 0 for all that is kept, null for what comes from
-- now on. A position that exists stays. Places that were drawn and not committed yet belong to what was before. Where times are not in
-- the order of places, as those of two statements at once, an earlier event is rather read than a later one skipped.
insert into holdfast.log_position (reader, line, position)
select :reader, p.line, {first_position}
  from generate_series(0, coalesce((select i.log_lines from holdfast.identity i where i.only_row), 16) - 1) as p(line)
on conflict do nothing;

-- fragment: first_position
case when :since::bigint is null then coalesce(pg_sequence_last_value(('holdfast.log_line_' || p.line)::regclass), 0)
     when :since::bigint = 0 then 0
     else least(coalesce((select max(l.place) from holdfast.log l
                           where l.line = p.line::smallint and l.at < holdfast.moment(:since::bigint)), 0),
                (select min(l.place) - 1 from holdfast.log l
                  where l.line = p.line::smallint and l.at >= holdfast.moment(:since::bigint))) end

-- name: reader_rewind
-- Sets a reader back or forward in all lines, or in one. Whoever reads one of them loses it: what is under way is refused.
update holdfast.log_position p
   set position = {first_position}, token = null, worker = null, expires_at = null, failures = 0, retry_at = null, error = null,
       epoch = (select r.epoch from holdfast.log_reader r where r.name = :reader), blocked = null, blocked_since = null
 where reader = :reader and (:line::smallint is null or line = :line::smallint)
returning line, position;

-- name: reader_new_epoch
update holdfast.log_reader set epoch = epoch + 1 where name = :reader;

-- name: reader_pause
update holdfast.log_reader set paused = :paused::boolean where name = :reader and paused <> :paused::boolean returning 1;

-- name: reader_let_go
-- Takes the lines of a reader from those who read them.
update holdfast.log_position set token = null, worker = null, expires_at = null where reader = :reader and token is not null;

-- name: reader_remove
delete from holdfast.log_reader where name = :reader returning 1;

-- name: reader_remove_patterns
delete from holdfast.log_pattern where reader = :reader;

-- name: reader_remove_positions
delete from holdfast.log_position where reader = :reader;

-- name: reader_remove_parked
delete from holdfast.log_parked where reader = :reader;

-- name: reader_list
select r.name, r.kind, r.paused, r.epoch, holdfast.us(r.created_at), holdfast.us(r.seen_at),
       coalesce((select json_agg(p.pattern order by p.pattern) from holdfast.log_pattern p where p.reader = r.name), '[]'::json)::text,
       (select count(*) from holdfast.log_member m where m.reader = r.name and m.expires_at > holdfast.moment(:now::bigint)), r.target
  from holdfast.log_reader r order by r.name;

-- name: reader_lines
-- How far each reader is in each line: its position, the last place there is, and the first event that it has not read.
select p.reader, p.line, p.position, coalesce(head.place, p.position), next.place, holdfast.us(next.at),
       case when {live_lease} then p.worker end, p.failures, holdfast.us(p.retry_at), p.error,
       (select count(*) from holdfast.log_parked k where k.reader = p.reader and k.line = p.line),
       p.blocked, holdfast.us(p.blocked_since)
  from holdfast.log_position p
  left join lateral (
    select l.place from holdfast.log l where l.line = p.line and l.place > p.position order by l.place desc limit 1) head on true
  left join lateral (
    select l.place, l.at from holdfast.log l where l.line = p.line and l.place > p.position order by l.place limit 1) next on true
 order by p.reader, p.line;

-- name: line_news
-- The lines of this process in which something is to be read, or an event is due again.
select p.reader, p.line
  from holdfast.log_position p
 where p.worker = :worker
   and (exists (select from holdfast.log l where l.line = p.line and l.place > p.position)
     or exists (select from holdfast.log_parked k where k.reader = p.reader and k.line = p.line and k.state = 'due'));

-- fragment: event_json
concat_ws(',', place, '"' || event || '"', coalesce(to_json(key)::text, 'null'), data, coalesce(headers, 'null'), '"' || id || '"',
          holdfast.us(at))

-- fragment: wanted_patterns
array (select replace(replace(p.pattern, '_', '\_'), '*', '%') from holdfast.log_pattern p where p.reader = :reader)

-- fragment: parked_facts
(select json_agg(distinct k.key)::text from holdfast.log_parked k where k.reader = :reader and k.line = :line::smallint),
exists (select from holdfast.log_parked k where k.reader = :reader and k.line = :line::smallint and k.state = 'due'),
holdfast.us(pg_postmaster_start_time())

-- name: line_read
-- Reads a block of a line in one JSON array, which costs a third of what rows do: the last place, how many there are, the events that
-- the reader wants, the keys that it has parked, and whether some of those are due. A block is a range of places, because the events of
-- a line are scattered among those of the others, and a range is read page by page. Where all of it is missing, the last place is that of
-- the next event, of which nothing was read.
select coalesce(max(place), case when count(*) = 0 then (
         select n.place from holdfast.log n
          where n.line = :line::smallint and n.place > :after::bigint + :limit::integer order by n.place limit 1) end), count(*),
       '[[' || string_agg({event_json}, '],[') filter (where event like any ({wanted_patterns})) || ']]', {parked_facts}
  from (select * from holdfast.log
         where line = :line::smallint and place > :after::bigint and place <= :after::bigint + :limit::integer order by place) l;

-- name: line_read_dense
-- Reads as much of a block as may be delivered where it has gaps: up to `settled`, what is missing was rolled back; above it, nothing is
-- missing. Returns the last place of that, and the last place seen at all.
with block as materialized (
  select *, row_number() over (partition by place > greatest(:after::bigint, :settled::bigint) order by place) as n
    from (select * from holdfast.log
           where line = :line::smallint and place > :after::bigint order by place limit :limit::integer) l),
dense as materialized (
  select * from block
   where place <= :settled::bigint or place - greatest(:after::bigint, :settled::bigint) = n)
select (select max(place) from dense), (select max(place) from block),
       (select '[[' || string_agg({event_json}, '],[' order by place) filter (where event like any ({wanted_patterns})) || ']]' from dense),
       {parked_facts};

-- name: line_holders
-- Who may still commit a place that was drawn from a line: `nextval` locks the sequence until the transaction ends, prepared or not,
-- whatever it rolls back on the way. With who they are, and the server's start, after which none of them is the one of before.
select l.virtualtransaction, pg_postmaster_start_time()::text, l.pid,
       coalesce(a.backend_xid::text, case when l.pid is null then substr(l.virtualtransaction, 4) end),
       holdfast.us(coalesce(a.xact_start, (select x.prepared from pg_prepared_xacts x
                                            where x.transaction::text = substr(l.virtualtransaction, 4) and l.pid is null)))
  from pg_locks l left join pg_stat_activity a on a.pid = l.pid
 where l.locktype = 'relation' and l.mode = 'RowExclusiveLock'
   and l.relation = ('holdfast.log_line_' || :line)::regclass
   and l.database = (select d.oid from pg_database d where d.datname = current_database())
 order by 5;

-- name: member_join
insert into holdfast.log_member (reader, worker, expires_at)
select e, :worker, holdfast.moment(:now::bigint) + :lease_ms::bigint * interval '1 ms'
  from json_array_elements_text(:readers::json) e
on conflict (reader, worker) do update set expires_at = excluded.expires_at;

-- name: member_list
select m.reader, m.worker
  from holdfast.log_member m join holdfast.log_reader r on r.name = m.reader and not r.paused
 where m.expires_at > holdfast.moment(:now::bigint)
 order by m.reader, m.worker;

-- name: member_leave
delete from holdfast.log_member where worker = :worker;

-- name: member_purge
delete from holdfast.log_member m
 using (select reader, worker from holdfast.log_member
         where expires_at <= holdfast.moment(:now::bigint) order by reader, worker for update skip locked) x
 where m.reader = x.reader and m.worker = x.worker;

-- name: line_renew
update holdfast.log_position p
   set expires_at = holdfast.moment(:now::bigint) + :lease_ms::bigint * interval '1 ms'
  from json_to_recordset(:rows::json) as x(reader text, line smallint, token uuid)
 where p.reader = x.reader and p.line = x.line and p.token = x.token
returning p.reader, p.line;

-- name: line_claim
-- Takes lines that nobody holds, or whose holder did not renew them; those that are locked are skipped and found the next time. With
-- whose they were, so that what that process left open can be ended. A holder that is gone while there is something to read may have
-- died of it: up to a number that counts as a failure, and from then on the tries themselves are counted.
with free as (
  select p.reader, p.line, p.token as old_token,
         p.token is not null and exists (select from holdfast.log l where l.line = p.line and l.place > p.position) as may_have_died
    from holdfast.log_position p
   where p.reader = :reader and not coalesce({live_lease}, false)
   order by p.line
   limit :limit::integer
   for update skip locked)
update holdfast.log_position p
   set token = :token::uuid, worker = :worker, fence = p.fence + 1, failures = p.failures + (f.may_have_died and p.failures < :suspected::integer)::integer,
       expires_at = holdfast.moment(:now::bigint) + :lease_ms::bigint * interval '1 ms'
  from free f
 where p.reader = f.reader and p.line = f.line
returning p.reader, p.line, p.position, p.fence, p.token::text, p.failures,
       greatest(0, (holdfast.us(p.retry_at) - holdfast.us(holdfast.moment(:now::bigint))) / 1000)::bigint, f.old_token::text;

-- name: line_next_expiry
-- When the next lease of another process ends, in milliseconds from now.
select ((holdfast.us(min(p.expires_at)) - holdfast.us(holdfast.moment(:now::bigint))) / 1000)::bigint
  from holdfast.log_position p
 where p.worker <> :worker and p.reader = any (array (select e from json_array_elements_text(:readers::json) e));

-- name: line_release
update holdfast.log_position p
   set token = null, worker = null, expires_at = null
  from json_to_recordset(:rows::json) as x(reader text, line smallint, token uuid)
 where p.reader = x.reader and p.line = x.line and p.token = x.token;

-- name: line_position
-- Where a reader is, for the holder of a token.
select position from holdfast.log_position where reader = :reader and line = :line::smallint and token = :token::uuid;

-- name: line_advance
-- Moves a position, under its token and from where it was: in the transaction of the rows that belong to it. After a failover the log
-- may lack what was read on the old server, and give its places to other events: so only on the server that was read.
update holdfast.log_position
   set position = :to::bigint, failures = 0, retry_at = null, error = null
 where reader = :reader and line = :line::smallint and token = :token::uuid and position = :from::bigint
   and (:server::bigint is null or holdfast.us(pg_postmaster_start_time()) = :server::bigint)
returning 1;

-- name: line_fail
-- Notes how often the events at a position have failed by now, as the holder of the line has counted.
update holdfast.log_position
   set failures = :failures::integer, error = :error,
       retry_at = holdfast.moment(:now::bigint) + :delay_ms::bigint * interval '1 ms'
 where reader = :reader and line = :line::smallint and token = :token::uuid
returning 1;

-- name: parked_put
-- Keeps events of the log for an operator; one that is held behind another of its key is due at once if that has gone meanwhile.
insert into holdfast.log_parked (reader, line, place, state, event, key, data, headers, id, at, error, attempts, parked_at)
select :reader, l.line, l.place,
       case when :state = 'held' and not exists (
              select from holdfast.log_parked k
               where k.reader = :reader and k.line = l.line and k.key = l.key and k.place < l.place) then 'due' else :state end,
       l.event, l.key, l.data, l.headers, l.id, l.at, :error, :attempts::integer, holdfast.moment(:now::bigint)
  from holdfast.log l
 where l.line = :line::smallint and l.place = any (array (select e::bigint from json_array_elements_text(:places::json) e));

-- name: parked_due
-- The first event of a line that is due again, as a block of one.
select '[[' || {event_json} || ']]'
  from holdfast.log_parked
 where reader = :reader and line = :line::smallint and state = 'due' order by place limit 1;

-- name: parked_done
-- Removes an event that was taken after all, under the token of its line.
delete from holdfast.log_parked k
 using holdfast.log_position p
 where k.reader = :reader and k.line = :line::smallint and k.place = :place::bigint
   and p.reader = k.reader and p.line = k.line and p.token = :token::uuid
returning 1;

-- name: parked_failed
update holdfast.log_parked
   set state = 'failed', error = :error, attempts = attempts + :tries::integer, parked_at = holdfast.moment(:now::bigint)
 where reader = :reader and line = :line::smallint and place = :place::bigint;

-- name: parked_hold_key
-- Those of the same key behind an event that failed again.
update holdfast.log_parked
   set state = 'held'
 where reader = :reader and line = :line::smallint and key = :key and place > :place::bigint and state = 'due';

-- name: parked_list
select {parked_columns} from holdfast.log_parked
 where (:reader is null or reader = :reader) and (:state is null or state = :state)
 order by reader, line, place limit :limit::integer;

-- name: parked_retry
-- Makes parked events due again that failed, with those of the same keys that are held behind them. One that is held does not go
-- before the one it waits for, whoever names it.
update holdfast.log_parked k
   set state = 'due'
 where k.reader = :reader
   and (:ids is null
     or k.state <> 'held' and k.id = any (array (select e::uuid from json_array_elements_text(:ids::json) e))
     or k.state = 'held' and exists (
       select from holdfast.log_parked f
        where f.reader = k.reader and f.line = k.line and f.key = k.key and f.state = 'failed'
          and f.id = any (array (select e::uuid from json_array_elements_text(:ids::json) e))))
returning k.id::text;

-- name: parked_skip
delete from holdfast.log_parked k
 where k.reader = :reader and k.state = 'failed'
   and (:ids is null or k.id = any (array (select e::uuid from json_array_elements_text(:ids::json) e)))
returning k.id::text;

-- name: parked_free
-- Makes those due that are held behind nothing any more: of a key in a line, or of all.
update holdfast.log_parked k
   set state = 'due'
 where k.reader = :reader and k.state = 'held' and (:line::smallint is null or k.line = :line::smallint and k.key = :key)
   and not exists (select from holdfast.log_parked f
                    where f.reader = k.reader and f.line = k.line and f.key = k.key and f.state = 'failed');

-- name: parked_totals
select reader, state, count(*) from holdfast.log_parked group by reader, state order by reader, state;
