-- fragment: parked_message_columns
-- The fields of `ParkedMessage`, in their order.
id::text, inbox, message_id, state, subject, error, attempts, holdfast.us(received_at), holdfast.us(parked_at)

-- name: inbox_register
-- Registers an inbox, or notes that it was seen.
insert into holdfast.inbox (name, kind, source, created_at, seen_at)
values (:inbox, :kind, :source, holdfast.moment(:now::bigint), holdfast.moment(:now::bigint))
on conflict (name) do update set kind = excluded.kind, source = excluded.source, seen_at = excluded.seen_at;

-- name: inbox_remember
-- Notes messages as received, in the transaction of their handler, and returns those that are new. A transaction that notes one of
-- them at the same time is waited for; in the order of ids, so that two batches never wait for each other.
insert into holdfast.inbox_seen as s (inbox, id, expires_at)
select :inbox, e, holdfast.moment(:now::bigint) + :dedupe_ms::bigint * interval '1 ms'
  from (select e from json_array_elements_text(:ids::json) e order by e collate "C") x
on conflict (inbox, id) do update set expires_at = excluded.expires_at where s.expires_at <= holdfast.moment(:now::bigint)
returning s.id;

-- name: inbox_forget_seen
-- Removes records that have outlived their time, a batch at a time, beside those who write new ones. An array is made once; a join
-- may look for the batch again for each of its rows.
delete from holdfast.inbox_seen
 where ctid = any (array (
   select ctid from holdfast.inbox_seen
    where expires_at <= holdfast.moment(:now::bigint)
    order by expires_at limit :limit::integer for update skip locked))
returning 1;

-- name: inbox_park
-- Keeps a message: one that failed, or one that waits behind a parked one of its key and is due once that is gone.
insert into holdfast.inbox_parked (id, inbox, message_id, state, subject, body, headers, error, attempts, received_at, parked_at,
       key, turn)
values (:id::uuid, :inbox, :message_id, :state, :subject, :body, :headers, :error, :attempts::integer,
        holdfast.moment(:received_at::bigint), holdfast.moment(:now::bigint), :key,
        (select coalesce(max(k.turn), 0) + 1 from holdfast.inbox_parked k where k.inbox = :inbox and k.key = :key));

-- name: inbox_parked_keys
select distinct key from holdfast.inbox_parked where inbox = :inbox and key is not null;

-- fragment: is_due
-- Of a key, only the first: the others wait until it was taken or skipped.
p.state = 'due' and not exists (
  select from holdfast.inbox_parked k where k.inbox = p.inbox and k.key = p.key and k.turn < p.turn)

-- name: inbox_due
-- Takes the first parked message that is due again. It counts as failed until it was taken: a process may die of it.
update holdfast.inbox_parked d
   set state = 'failed', error = :error, attempts = d.attempts + 1, parked_at = holdfast.moment(:now::bigint)
 where d.id = (
   select p.id from holdfast.inbox_parked p
    where p.inbox = :inbox and {is_due} order by p.id limit 1 for update skip locked)
returning d.id::text, d.message_id, d.subject, d.body, d.headers, d.attempts, holdfast.us(d.received_at);

-- name: inbox_has_due
select p.inbox from holdfast.inbox_parked p where {is_due} group by p.inbox;

-- name: inbox_unpark
-- Removes a message in the transaction that takes it; of two processes that take it, one finds it gone.
delete from holdfast.inbox_parked where id = :id::uuid returning 1;

-- name: inbox_park_again
update holdfast.inbox_parked set state = 'failed', error = :error, parked_at = holdfast.moment(:now::bigint)
 where id = :id::uuid
returning 1;

-- name: inbox_parked_list
select {parked_message_columns} from holdfast.inbox_parked
 where (:inbox is null or inbox = :inbox) and (:state is null or state = :state)
 order by inbox, id limit :limit::integer;

-- name: inbox_retry
-- Makes parked messages due: those with the ids, or all.
update holdfast.inbox_parked
   set state = 'due'
 where inbox = :inbox and state = 'failed'
   and (:ids is null or id = any (array (select e::uuid from json_array_elements_text(:ids::json) e)))
returning id::text;

-- name: inbox_skip
delete from holdfast.inbox_parked
 where inbox = :inbox and state = 'failed'
   and (:ids is null or id = any (array (select e::uuid from json_array_elements_text(:ids::json) e)))
returning id::text;

-- name: inbox_list
select i.name, i.kind, i.source, holdfast.us(i.created_at), holdfast.us(i.seen_at),
       (select count(*) from holdfast.inbox_member m where m.inbox = i.name and m.expires_at > holdfast.moment(:now::bigint)),
       (select count(*) from holdfast.inbox_parked p where p.inbox = i.name),
       (select max(m.error) from holdfast.inbox_member m where m.inbox = i.name and m.expires_at > holdfast.moment(:now::bigint))
  from holdfast.inbox i order by i.name;

-- name: inbox_member_beat
insert into holdfast.inbox_member (inbox, worker, expires_at, error)
values (:inbox, :worker, holdfast.moment(:now::bigint) + :lease_ms::bigint * interval '1 ms', :error)
on conflict (inbox, worker) do update set expires_at = excluded.expires_at, error = excluded.error;

-- name: inbox_member_leave
delete from holdfast.inbox_member where worker = :worker;

-- name: inbox_member_purge
delete from holdfast.inbox_member m
 using (select inbox, worker from holdfast.inbox_member
         where expires_at <= holdfast.moment(:now::bigint) order by inbox, worker for update skip locked) x
 where m.inbox = x.inbox and m.worker = x.worker;

-- name: inbox_remove
delete from holdfast.inbox where name = :inbox;

-- name: inbox_remove_parked
delete from holdfast.inbox_parked where inbox = :inbox;

-- name: inbox_member_list
select worker from holdfast.inbox_member where inbox = :inbox and expires_at > holdfast.moment(:now::bigint) order by worker;

-- name: inbox_line_begin
insert into holdfast.inbox_line (inbox, line)
select :inbox, e from json_array_elements_text(:lines::json) e on conflict do nothing;

-- name: inbox_line_claim
-- Takes lines that nobody holds, or whose holder did not renew them; those that are locked are skipped and found the next time. With
-- whose they were, so that what that process left open can be ended.
with free as (
  select l.inbox, l.line, l.token as old_token
    from holdfast.inbox_line l
   where l.inbox = :inbox and l.line = any (array (select e from json_array_elements_text(:lines::json) e))
     and (l.token is null or l.expires_at <= holdfast.moment(:now::bigint))
   order by l.line
   limit :limit::integer
   for update skip locked)
update holdfast.inbox_line l
   set token = :token::uuid, worker = :worker, expires_at = holdfast.moment(:now::bigint) + :lease_ms::bigint * interval '1 ms',
       deaths = l.deaths + case when f.old_token is null then 0 else 1 end
  from free f
 where l.inbox = f.inbox and l.line = f.line
returning l.line, l.token::text, l.place, l.deaths, f.old_token::text;

-- name: inbox_line_renew
update holdfast.inbox_line l
   set expires_at = holdfast.moment(:now::bigint) + :lease_ms::bigint * interval '1 ms'
  from json_to_recordset(:rows::json) as x(line text, token uuid)
 where l.inbox = :inbox and l.line = x.line and l.token = x.token
returning l.line;

-- name: inbox_line_release
update holdfast.inbox_line l
   set token = null, worker = null, expires_at = null
  from json_to_recordset(:rows::json) as x(line text, token uuid)
 where l.inbox = :inbox and l.line = x.line and l.token = x.token;

-- name: inbox_line_place
-- Where a line is, for the holder of a token.
select place from holdfast.inbox_line where inbox = :inbox and line = :line and token = :token::uuid;

-- name: inbox_line_move
-- Moves a line, under its token and from where it was: in the transaction of the rows that belong to it.
update holdfast.inbox_line
   set place = :to, deaths = 0, tries = 0
 where inbox = :inbox and line = :line and token = :token::uuid and place is not distinct from :from
returning 1;

-- name: inbox_line_try
-- Counts a try of the next message, before it: a process may die of it.
update holdfast.inbox_line set tries = tries + 1
 where inbox = :inbox and line = :line and token = :token::uuid
returning tries;

-- name: inbox_remove_lines
delete from holdfast.inbox_line where inbox = :inbox;
