-- name: log_next
-- Draws the next place of an event's line, if a reader is known here or registered in the database.
update holdfast_log_line set place = place + 1
 where line = :hash % (select count(*) from holdfast_log_line)
   and (:declared or exists (select 1 from holdfast_log_pattern where :event glob pattern))
returning line, place;

-- name: log_append
insert into holdfast_log (line, place, event, key, data, headers, id, at)
values (:line, :place, :event, :key, :data, :headers, :id, coalesce(:now, (select now from holdfast_clock)));
