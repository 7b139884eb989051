-- name: relay_line
-- Where a relay is, for the holder of a token: with what it sent last, and whether any of its lines has sent something.
select p.position, p.epoch, p.sent, p.blocked,
       exists (select 1 from holdfast_log_position o where o.reader = p.reader and o.sent is not null)
  from holdfast_log_position p
 where p.reader = :reader and p.line = :line and p.token = :token;

-- name: relay_move
-- Moves a relay's position, forward or back, together with what its stream has now: under its token and from where it was.
update holdfast_log_position
   set position = :to, sent = :sent, failures = 0, retry_at = null, error = null, blocked = null, blocked_since = null
 where reader = :reader and line = :line and token = :token and position = :from
returning 1;

-- name: relay_block
-- Notes why a line waits, and since when.
update holdfast_log_position
   set blocked_since = case when blocked = :state then blocked_since else {moment} end,
       blocked = :state, error = :error, failures = failures + 1, retry_at = {moment} + :delay_ms * 1000
 where reader = :reader and line = :line and token = :token
returning failures;

-- name: relay_unblock
update holdfast_log_position
   set blocked = null, blocked_since = null, error = null, failures = 0, retry_at = null
 where reader = :reader and line = :line and token = :token and blocked is not null;

-- name: relay_ids
-- Which events the log has at these places.
select place, id from holdfast_log where line = :line and place in (select value from json_each(:places));

-- name: relay_parked
select place, id from holdfast_log_parked where reader = :reader and line = :line;

-- name: relay_unpark
-- Removes parked events that the stream has, under the token of their line.
delete from holdfast_log_parked
 where reader = :reader and line = :line and id in (select value from json_each(:ids))
   and exists (select 1 from holdfast_log_position p where p.reader = :reader and p.line = :line and p.token = :token);

-- name: relay_range
-- How many events the log still has in a range of places, and the first one of the line at all.
select (select count(*) from holdfast_log where line = :line and place > :after and place <= :upto),
       (select min(place) from holdfast_log where line = :line);

-- name: relay_raise_epoch
update holdfast_log_reader set epoch = max(epoch, :epoch) where name = :reader;

-- name: relay_rebase
-- Has lines go on where they are in a new epoch, whose streams have events that this database does not. Whoever reads one loses it.
update holdfast_log_position
   set epoch = (select r.epoch from holdfast_log_reader r where r.name = :reader), blocked = null, blocked_since = null, error = null,
       failures = 0, retry_at = null, token = null, worker = null, expires_at = null
 where reader = :reader and blocked = 'ahead'
returning line;

-- name: relay_recreate
-- Lets lines whose stream is missing create it. Whoever reads one loses it, and looks anew.
update holdfast_log_position
   set blocked = 'recreate', error = null, failures = 0, retry_at = null, token = null, worker = null, expires_at = null
 where reader = :reader and blocked = 'unfit'
returning line;
