-- name: log_trim
-- Removes old events that every reader has passed, a batch of each line at a time, where no partition can be dropped.
delete from holdfast.log l
 using (
   select old.line, old.place
     from generate_series(0, coalesce((select i.log_lines from holdfast.identity i where i.only_row), 16) - 1) as n(line)
    cross join lateral (
      select o.line, o.place from holdfast.log o
       where o.line = n.line::smallint and o.at < holdfast.moment(:now::bigint) - :keep_ms::bigint * interval '1 ms'
         and o.place <= coalesce((select min(p.position) from holdfast.log_position p where p.line = o.line), o.place)
       order by o.place limit :limit::integer / 16) old) x
 where l.line = x.line and l.place = x.place
returning 1;

-- name: log_parts
-- The parts of the log, oldest first: when each began and ended, and whether every reader has passed all that is in it.
select b.part, holdfast.us(b.begins_at),
       (select holdfast.us(min(e.begins_at)) from holdfast.log_part e where e.part > b.part),
       not exists (
         select from generate_series(0, coalesce((select i.log_lines from holdfast.identity i where i.only_row), 16) - 1) as n(line)
          where (select max(l.place) from holdfast.log l where l.line = n.line::smallint and l.part = b.part)
                > (select min(p.position) from holdfast.log_position p where p.line = n.line::smallint))
  from holdfast.log_part b
 order by b.part;

-- name: log_part_begin
-- Has events go to a part from now on; its partition is there.
insert into holdfast.log_part (part, begins_at) values (:part::integer, holdfast.moment(:now::bigint)) on conflict do nothing;

-- name: log_part_end
delete from holdfast.log_part where part = :part::integer;
