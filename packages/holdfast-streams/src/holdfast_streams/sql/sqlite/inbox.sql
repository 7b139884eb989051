-- fragment: parked_message_columns
-- The fields of `ParkedMessage`, in their order.
id, inbox, message_id, state, subject, error, attempts, received_at, parked_at

-- name: inbox_register
-- Registers an inbox, or notes that it was seen.
insert into holdfast_inbox (name, kind, source, created_at, seen_at) values (:inbox, :kind, :source, {moment}, {moment})
on conflict (name) do update set kind = excluded.kind, source = excluded.source, seen_at = excluded.seen_at;

-- name: inbox_remember
-- Notes messages as received, in the transaction of their handler, and returns those that are new. Writers come one after the other.
insert into holdfast_inbox_seen (inbox, id, expires_at)
select :inbox, value, {moment} + :dedupe_ms * 1000 from json_each(:ids) where true
on conflict (inbox, id) do update set expires_at = excluded.expires_at where holdfast_inbox_seen.expires_at <= {moment}
returning id;

-- name: inbox_forget_seen
-- Removes records that have outlived their time, a batch at a time.
delete from holdfast_inbox_seen
 where (inbox, id) in (select inbox, id from holdfast_inbox_seen where expires_at <= {moment} order by expires_at limit :limit)
returning 1;

-- name: inbox_park
-- Keeps a message: one that failed, or one that waits behind a parked one of its key and is due once that is gone.
insert into holdfast_inbox_parked (id, inbox, message_id, state, subject, body, headers, error, attempts, received_at, parked_at,
       key, turn)
values (:id, :inbox, :message_id, :state, :subject, :body, :headers, :error, :attempts,
        coalesce(:received_at, (select now from holdfast_clock)), {moment}, :key,
        (select coalesce(max(k.turn), 0) + 1 from holdfast_inbox_parked k where k.inbox = :inbox and k.key = :key));

-- name: inbox_parked_keys
select distinct key from holdfast_inbox_parked where inbox = :inbox and key is not null;

-- fragment: is_due
-- Of a key, only the first: the others wait until it was taken or skipped.
p.state = 'due' and not exists (
  select 1 from holdfast_inbox_parked k where k.inbox = p.inbox and k.key = p.key and k.turn < p.turn)

-- name: inbox_due
-- Takes the first parked message that is due again. It counts as failed until it was taken: a process may die of it.
update holdfast_inbox_parked set state = 'failed', error = :error, attempts = attempts + 1, parked_at = {moment}
 where id = (select p.id from holdfast_inbox_parked p where p.inbox = :inbox and {is_due} order by p.id limit 1)
returning id, message_id, subject, body, headers, attempts, received_at;

-- name: inbox_has_due
select p.inbox from holdfast_inbox_parked p where {is_due} group by p.inbox;

-- name: inbox_unpark
-- Removes a message in the transaction that takes it; of two processes that take it, one finds it gone.
delete from holdfast_inbox_parked where id = :id returning 1;

-- name: inbox_park_again
update holdfast_inbox_parked set state = 'failed', error = :error, parked_at = {moment} where id = :id returning 1;

-- name: inbox_parked_list
select {parked_message_columns} from holdfast_inbox_parked
 where (:inbox is null or inbox = :inbox) and (:state is null or state = :state)
 order by inbox, id limit :limit;

-- name: inbox_retry
-- Makes parked messages due: those with the ids, or all.
update holdfast_inbox_parked set state = 'due'
 where inbox = :inbox and state = 'failed' and (:ids is null or id in (select value from json_each(:ids)))
returning id;

-- name: inbox_skip
delete from holdfast_inbox_parked
 where inbox = :inbox and state = 'failed' and (:ids is null or id in (select value from json_each(:ids)))
returning id;

-- name: inbox_list
select i.name, i.kind, i.source, i.created_at, i.seen_at,
       (select count(*) from holdfast_inbox_member m where m.inbox = i.name and m.expires_at > {moment}),
       (select count(*) from holdfast_inbox_parked p where p.inbox = i.name),
       (select max(m.error) from holdfast_inbox_member m where m.inbox = i.name and m.expires_at > {moment})
  from holdfast_inbox i order by i.name;

-- name: inbox_member_beat
insert into holdfast_inbox_member (inbox, worker, expires_at, error)
values (:inbox, :worker, {moment} + :lease_ms * 1000, :error)
on conflict (inbox, worker) do update set expires_at = excluded.expires_at, error = excluded.error;

-- name: inbox_member_leave
delete from holdfast_inbox_member where worker = :worker;

-- name: inbox_member_purge
delete from holdfast_inbox_member where expires_at <= {moment};

-- name: inbox_remove
delete from holdfast_inbox where name = :inbox;

-- name: inbox_remove_parked
delete from holdfast_inbox_parked where inbox = :inbox;

-- name: inbox_member_list
select worker from holdfast_inbox_member where inbox = :inbox and expires_at > {moment} order by worker;

-- name: inbox_line_begin
insert into holdfast_inbox_line (inbox, line) select :inbox, value from json_each(:lines) where true on conflict do nothing;

-- name: inbox_line_claim
-- Takes lines that nobody holds, or whose holder did not renew them.
update holdfast_inbox_line
   set deaths = deaths + case when token is null then 0 else 1 end,
       token = :token, worker = :worker, expires_at = {moment} + :lease_ms * 1000
 where inbox = :inbox and line in (
   select line from holdfast_inbox_line
    where inbox = :inbox and line in (select value from json_each(:lines)) and (token is null or expires_at <= {moment})
    order by line limit :limit)
returning line, token, place, deaths, null;

-- name: inbox_line_renew
update holdfast_inbox_line set expires_at = {moment} + :lease_ms * 1000
 where inbox = :inbox and (line, token) in (
   select json_extract(value, '$.line'), json_extract(value, '$.token') from json_each(:rows))
returning line;

-- name: inbox_line_release
update holdfast_inbox_line set token = null, worker = null, expires_at = null
 where inbox = :inbox and (line, token) in (
   select json_extract(value, '$.line'), json_extract(value, '$.token') from json_each(:rows));

-- name: inbox_line_place
-- Where a line is, for the holder of a token.
select place from holdfast_inbox_line where inbox = :inbox and line = :line and token = :token;

-- name: inbox_line_move
-- Moves a line, under its token and from where it was: in the transaction of the rows that belong to it.
update holdfast_inbox_line set place = :to, deaths = 0, tries = 0
 where inbox = :inbox and line = :line and token = :token and place is :from
returning 1;

-- name: inbox_line_try
-- Counts a try of the next message, before it: a process may die of it.
update holdfast_inbox_line set tries = tries + 1 where inbox = :inbox and line = :line and token = :token returning tries;

-- name: inbox_remove_lines
delete from holdfast_inbox_line where inbox = :inbox;
