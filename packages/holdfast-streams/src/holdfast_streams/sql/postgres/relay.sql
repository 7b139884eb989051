-- name: relay_line
-- Where a relay is, for the holder of a token: with what it sent last, and whether any of its lines has sent something.
select p.position, p.epoch, p.sent, p.blocked,
       exists (select from holdfast.log_position o where o.reader = p.reader and o.sent is not null)
  from holdfast.log_position p
 where p.reader = :reader and p.line = :line::smallint and p.token = :token::uuid;

-- name: relay_move
-- Moves a relay's position, forward or back, together with what its stream has now: under its token, from where it was, and on the server
-- that was read, as line_advance does.
update holdfast.log_position
   set position = :to::bigint, sent = :sent, failures = 0, retry_at = null, error = null, blocked = null, blocked_since = null
 where reader = :reader and line = :line::smallint and token = :token::uuid and position = :from::bigint
   and (:server::bigint is null or holdfast.us(pg_postmaster_start_time()) = :server::bigint)
returning 1;

-- name: relay_block
-- Notes why a line waits, and since when.
update holdfast.log_position
   set blocked_since = case when blocked = :state then blocked_since else holdfast.moment(:now::bigint) end,
       blocked = :state, error = :error, failures = failures + 1,
       retry_at = holdfast.moment(:now::bigint) + :delay_ms::bigint * interval '1 ms'
 where reader = :reader and line = :line::smallint and token = :token::uuid
returning failures;

-- name: relay_unblock
update holdfast.log_position
   set blocked = null, blocked_since = null, error = null, failures = 0, retry_at = null
 where reader = :reader and line = :line::smallint and token = :token::uuid and blocked is not null;

-- name: relay_ids
-- Which events the log has at these places.
select place, id::text from holdfast.log
 where line = :line::smallint and place = any (array (select e::bigint from json_array_elements_text(:places::json) e));

-- name: relay_parked
select place, id::text from holdfast.log_parked where reader = :reader and line = :line::smallint;

-- name: relay_unpark
-- Removes parked events that the stream has, under the token of their line.
delete from holdfast.log_parked k
 using holdfast.log_position p
 where k.reader = :reader and k.line = :line::smallint
   and k.id = any (array (select e::uuid from json_array_elements_text(:ids::json) e))
   and p.reader = k.reader and p.line = k.line and p.token = :token::uuid;

-- name: relay_range
-- How many events the log still has in a range of places, and the first one of the line at all.
select (select count(*) from holdfast.log where line = :line::smallint and place > :after::bigint and place <= :upto::bigint),
       (select min(place) from holdfast.log where line = :line::smallint);

-- name: relay_raise_epoch
update holdfast.log_reader set epoch = greatest(epoch, :epoch::bigint) where name = :reader;

-- name: relay_rebase
-- Has lines go on where they are in a new epoch, whose streams have events that this database does not. Whoever reads one loses it.
update holdfast.log_position
   set epoch = (select r.epoch from holdfast.log_reader r where r.name = :reader), blocked = null, blocked_since = null, error = null,
       failures = 0, retry_at = null, token = null, worker = null, expires_at = null
 where reader = :reader and blocked = 'ahead'
returning line;

-- name: relay_recreate
-- Lets lines whose stream is missing create it. Whoever reads one loses it, and looks anew.
update holdfast.log_position
   set blocked = 'recreate', error = null, failures = 0, retry_at = null, token = null, worker = null, expires_at = null
 where reader = :reader and blocked = 'unfit'
returning line;
