-- name: stream_empty
truncate holdfast.log;

-- name: stream_block
-- The next events of a line as one JSON, and the place of the last.
select max(place), json_agg(json_build_array(place, event, key, data::json, headers, id, at))
  from (select * from holdfast.log where line = %(line)s and place > %(place)s order by place limit %(limit)s) as block;

-- name: stream_move
update holdfast.log_position set position = %(place)s where reader = 'bench' and line = %(line)s;

-- name: inbox_empty
truncate holdfast.inbox_seen;

-- name: stream_fill
-- As many places in each line as it gets events, drawn without a gap.
with chosen as (
  select g, mod(g, 16)::smallint as line, (g / 16 + 1)::bigint as place from generate_series(0, %(count)s::integer - 1) g)
insert into holdfast.log (line, place, event, key, data, headers, id, at, part)
select line, place, 'order.paid', 'k' || mod(g, 1000),
       json_build_object('order', g, 'amount', '99.95', 'currency', 'EUR', 'customer', 'c-' || mod(g, 1000), 'items', array[1, 2, 3])::text,
       null, gen_random_uuid(), now(), coalesce((select max(part) from holdfast.log_part), 0)
  from chosen;
