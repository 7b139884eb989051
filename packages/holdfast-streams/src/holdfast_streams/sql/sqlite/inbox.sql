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
insert into holdfast_inbox_parked (id, inbox, message_id, state, subject, body, headers, error, attempts, received_at, parked_at)
values (:id, :inbox, :message_id, 'failed', :subject, :body, :headers, :error, :attempts,
        coalesce(:received_at, (select now from holdfast_clock)), {moment});

-- name: inbox_due
-- The first parked message that is due again; no other writer is in between.
select id, message_id, subject, body, headers, attempts, received_at
  from holdfast_inbox_parked where inbox = :inbox and state = 'due' order by id limit 1;

-- name: inbox_has_due
select inbox from holdfast_inbox_parked where state = 'due' group by inbox;

-- name: inbox_unpark
delete from holdfast_inbox_parked where id = :id and state = 'due' returning 1;

-- name: inbox_park_again
update holdfast_inbox_parked
   set state = 'failed', error = :error, attempts = attempts + 1, parked_at = {moment}
 where id = :id and state = 'due'
returning attempts;

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
delete from holdfast_inbox where name = :inbox returning name;

-- name: inbox_remove_parked
delete from holdfast_inbox_parked where inbox = :inbox;
