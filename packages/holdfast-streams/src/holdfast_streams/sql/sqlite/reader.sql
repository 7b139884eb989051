-- fragment: parked_columns
-- The fields of `ParkedEvent`, in their order.
reader, line, place, state, event, key, id, at, error, attempts, parked_at

-- fragment: moment
coalesce(:now, (select now from holdfast_clock))

-- fragment: event_json
'[' || place || ',' || json_quote(event) || ',' || json_quote(key) || ',' || data || ',' || coalesce(headers, 'null')
    || ',"' || id || '",' || at || ']'

-- name: reader_register
-- Registers a reader, or notes that it was seen.
insert into holdfast_log_reader (name, kind, target, created_at, seen_at) values (:reader, :kind, :target, {moment}, {moment})
on conflict (name) do update set kind = excluded.kind, target = excluded.target, seen_at = excluded.seen_at;

-- name: reader_forget_patterns
delete from holdfast_log_pattern where reader = :reader and pattern not in (select value from json_each(:patterns));

-- name: reader_add_patterns
insert into holdfast_log_pattern (reader, pattern) select :reader, value from json_each(:patterns) where true on conflict do nothing;

-- fragment: first_position
case when :since is null then n.place
     else coalesce((select min(l.place) - 1 from holdfast_log l where l.line = n.line and l.at >= :since), n.place) end

-- name: reader_begin
-- Gives a new reader its position in each line: before the first event of an instant, 0 for all that is kept, null for what comes from
-- now on. A position that exists stays.
insert into holdfast_log_position (reader, line, position)
select :reader, n.line, {first_position} from holdfast_log_line n where true
on conflict do nothing;

-- name: reader_rewind
-- Sets a reader back or forward in all lines, or in one. Whoever reads one of them loses it: what is under way is refused.
update holdfast_log_position
   set position = (select {first_position} from holdfast_log_line n where n.line = holdfast_log_position.line),
       token = null, worker = null, expires_at = null, failures = 0, retry_at = null, error = null,
       epoch = (select r.epoch from holdfast_log_reader r where r.name = :reader), blocked = null, blocked_since = null
 where reader = :reader and (:line is null or line = :line)
returning line, position;

-- name: reader_new_epoch
update holdfast_log_reader set epoch = epoch + 1 where name = :reader;

-- name: reader_pause
update holdfast_log_reader set paused = :paused where name = :reader and paused <> :paused returning 1;

-- name: reader_let_go
-- Takes the lines of a reader from those who read them.
update holdfast_log_position set token = null, worker = null, expires_at = null where reader = :reader and token is not null;

-- name: reader_remove
delete from holdfast_log_reader where name = :reader returning 1;

-- name: reader_remove_patterns
delete from holdfast_log_pattern where reader = :reader;

-- name: reader_remove_positions
delete from holdfast_log_position where reader = :reader;

-- name: reader_remove_parked
delete from holdfast_log_parked where reader = :reader;

-- name: reader_list
select r.name, r.kind, r.paused, r.epoch, r.created_at, r.seen_at,
       (select json_group_array(p.pattern) from holdfast_log_pattern p where p.reader = r.name),
       (select count(*) from holdfast_log_member m where m.reader = r.name and m.expires_at > {moment}), r.target
  from holdfast_log_reader r order by r.name;

-- name: reader_lines
-- How far each reader is in each line: its position, the last place there is, and the first event that it has not read.
select p.reader, p.line, p.position, max(n.place, p.position),
       (select min(l.place) from holdfast_log l where l.line = p.line and l.place > p.position),
       (select l.at from holdfast_log l where l.line = p.line and l.place > p.position order by l.place limit 1),
       case when p.expires_at > {moment} then p.worker end, p.failures, p.retry_at, p.error,
       (select count(*) from holdfast_log_parked k where k.reader = p.reader and k.line = p.line),
       p.blocked, p.blocked_since
  from holdfast_log_position p join holdfast_log_line n on n.line = p.line
 order by p.reader, p.line;

-- name: line_news
-- The lines of this process in which something is to be read, or an event is due again.
select p.reader, p.line
  from holdfast_log_position p
 where p.worker = :worker
   and (exists (select 1 from holdfast_log l where l.line = p.line and l.place > p.position)
     or exists (select 1 from holdfast_log_parked k where k.reader = p.reader and k.line = p.line and k.state = 'due'));

-- name: line_read
-- Reads a block of a line in one JSON array. There are no gaps, so all of it may be delivered.
with block as materialized (
  select * from holdfast_log where line = :line and place > :after order by place limit :limit),
wanted as materialized (
  select e.event from (select distinct event from block) e
   where exists (select 1 from holdfast_log_pattern p where p.reader = :reader and e.event glob p.pattern))
select (select max(place) from block), (select max(place) from block) - :after,
       (select '[' || group_concat(text, ',') || ']'
          from (select {event_json} as text from block where event in (select event from wanted) order by place)),
       (select json_group_array(distinct k.key) from holdfast_log_parked k where k.reader = :reader and k.line = :line),
       exists (select 1 from holdfast_log_parked k where k.reader = :reader and k.line = :line and k.state = 'due'), null;

-- name: line_holders
-- Writers come one after the other, so nobody is waited for.
select :line where false;

-- name: member_join
insert into holdfast_log_member (reader, worker, expires_at)
select value, :worker, {moment} + :lease_ms * 1000 from json_each(:readers) where true
on conflict (reader, worker) do update set expires_at = excluded.expires_at;

-- name: member_list
select m.reader, m.worker
  from holdfast_log_member m join holdfast_log_reader r on r.name = m.reader and not r.paused
 where m.expires_at > {moment}
 order by m.reader, m.worker;

-- name: member_leave
delete from holdfast_log_member where worker = :worker;

-- name: member_purge
delete from holdfast_log_member where expires_at <= {moment};

-- name: line_renew
update holdfast_log_position set expires_at = {moment} + :lease_ms * 1000
 where (reader, line, token) in (
   select json_extract(value, '$.reader'), json_extract(value, '$.line'), json_extract(value, '$.token') from json_each(:rows))
returning reader, line;

-- name: line_claim
-- Takes lines that nobody holds, or whose holder did not renew them. A holder that is gone while there is something to read may have
-- died of it: up to a number that counts as a failure, and from then on the tries themselves are counted.
update holdfast_log_position
   set token = :token, worker = :worker, fence = fence + 1, expires_at = {moment} + :lease_ms * 1000,
       failures = failures + (token is not null and failures < :suspected and exists (
         select 1 from holdfast_log l where l.line = holdfast_log_position.line and l.place > holdfast_log_position.position))
 where reader = :reader and line in (
   select line from holdfast_log_position
    where reader = :reader and (token is null or expires_at <= {moment}) order by line limit :limit)
returning reader, line, position, fence, token, failures, max(0, coalesce((retry_at - {moment}) / 1000, 0)), null;

-- name: line_next_expiry
-- When the next lease of another process ends, in milliseconds from now.
select (min(expires_at) - {moment}) / 1000 from holdfast_log_position
 where worker <> :worker and reader in (select value from json_each(:readers));

-- name: line_release
update holdfast_log_position set token = null, worker = null, expires_at = null
 where (reader, line, token) in (
   select json_extract(value, '$.reader'), json_extract(value, '$.line'), json_extract(value, '$.token') from json_each(:rows));

-- name: line_position
-- Where a reader is, for the holder of a token.
select position from holdfast_log_position where reader = :reader and line = :line and token = :token;

-- name: line_advance
-- Moves a position, under its token and from where it was: in the transaction of the rows that belong to it.
update holdfast_log_position
   set position = :to, failures = 0, retry_at = null, error = null
 where reader = :reader and line = :line and token = :token and position = :from
returning 1;

-- name: line_fail
-- Notes how often the events at a position have failed by now, as the holder of the line has counted.
update holdfast_log_position
   set failures = :failures, error = :error, retry_at = {moment} + :delay_ms * 1000
 where reader = :reader and line = :line and token = :token
returning 1;

-- name: parked_put
-- Keeps events of the log for an operator; one that is held behind another of its key is due at once if that has gone meanwhile.
insert into holdfast_log_parked (reader, line, place, state, event, key, data, headers, id, at, error, attempts, parked_at)
select :reader, l.line, l.place,
       case when :state = 'held' and not exists (
              select 1 from holdfast_log_parked k
               where k.reader = :reader and k.line = l.line and k.key = l.key and k.place < l.place) then 'due' else :state end,
       l.event, l.key, l.data, l.headers, l.id, l.at, :error, :attempts, {moment}
  from holdfast_log l
 where l.line = :line and l.place in (select value from json_each(:places));

-- name: parked_due
-- The first event of a line that is due again, as a block of one.
select '[' || {event_json} || ']'
  from holdfast_log_parked
 where reader = :reader and line = :line and state = 'due' order by place limit 1;

-- name: parked_done
-- Removes an event that was taken after all, under the token of its line.
delete from holdfast_log_parked
 where reader = :reader and line = :line and place = :place
   and exists (select 1 from holdfast_log_position p where p.reader = :reader and p.line = :line and p.token = :token)
returning 1;

-- name: parked_failed
update holdfast_log_parked set state = 'failed', error = :error, attempts = attempts + :tries, parked_at = {moment}
 where reader = :reader and line = :line and place = :place;

-- name: parked_hold_key
-- Those of the same key behind an event that failed again.
update holdfast_log_parked set state = 'held'
 where reader = :reader and line = :line and key = :key and place > :place and state = 'due';

-- name: parked_list
select {parked_columns} from holdfast_log_parked
 where (:reader is null or reader = :reader) and (:state is null or state = :state)
 order by reader, line, place limit :limit;

-- name: parked_retry
-- Makes parked events due again that failed, with those of the same keys that are held behind them. One that is held does not go
-- before the one it waits for, whoever names it.
update holdfast_log_parked
   set state = 'due'
 where reader = :reader
   and (:ids is null
     or state <> 'held' and id in (select value from json_each(:ids))
     or state = 'held' and exists (
       select 1 from holdfast_log_parked f
        where f.reader = holdfast_log_parked.reader and f.line = holdfast_log_parked.line and f.key = holdfast_log_parked.key
          and f.state = 'failed' and f.id in (select value from json_each(:ids))))
returning id;

-- name: parked_skip
delete from holdfast_log_parked
 where reader = :reader and state = 'failed' and (:ids is null or id in (select value from json_each(:ids)))
returning id;

-- name: parked_free
-- Makes those due that are held behind nothing any more: of a key in a line, or of all.
update holdfast_log_parked
   set state = 'due'
 where reader = :reader and state = 'held' and (:line is null or line = :line and key = :key)
   and not exists (select 1 from holdfast_log_parked f
                    where f.reader = holdfast_log_parked.reader and f.line = holdfast_log_parked.line
                      and f.key = holdfast_log_parked.key and f.state = 'failed');

-- name: parked_totals
select reader, state, count(*) from holdfast_log_parked group by reader, state order by reader, state;
