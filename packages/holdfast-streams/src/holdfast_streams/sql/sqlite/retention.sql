-- name: log_trim
-- Removes old events that every reader has passed, a batch at a time.
delete from holdfast_log
 where (line, place) in (
   select l.line, l.place from holdfast_log l
    where l.at < {moment} - :keep_ms * 1000
      and l.place <= coalesce((select min(p.position) from holdfast_log_position p where p.line = l.line), l.place)
    order by l.at limit :limit)
returning 1;

-- name: log_parts
-- One table holds all of it.
select 1 where false;

-- name: log_part_begin
select :part where :now is null and false;

-- name: log_part_end
select :part where false;
