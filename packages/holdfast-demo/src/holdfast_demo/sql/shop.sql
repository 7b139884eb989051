-- The shop's own tables and statements, with psycopg's parameters. Nothing here prevents a second payment: that is up
-- to Holdfast, and the ledger checks it.

-- name: place
insert into shop_order (id, item, amount, placed_at)
select coalesce(max(id), 0) + 1, %(item)s, %(amount)s, %(at)s from shop_order
returning id;

-- name: reserve
insert into shop_reservation (order_id, at) values (%(order)s, %(at)s);

-- name: begin_payment
insert into shop_payment_begun (order_id, attempt, at) values (%(order)s, %(attempt)s, %(at)s);

-- name: pay
insert into shop_payment (order_id, amount, attempt, worker, at)
values (%(order)s, %(amount)s, %(attempt)s, %(worker)s, %(at)s);

-- name: ship
update shop_order set shipped_at = %(at)s where id = %(order)s;

-- name: mail
insert into shop_mail (message_key, order_id, at) values (%(key)s, %(order)s, %(at)s)
on conflict (message_key) do nothing;

-- name: gateway_is_down
select is_on from shop_switch where name = 'gateway is down';

-- name: set_gateway
update shop_switch set is_on = %(is_on)s where name = 'gateway is down';

-- name: ledger
select (select count(*) from shop_order),
       (select count(distinct order_id) from shop_payment),
       (select count(*) from (select order_id from shop_payment group by order_id having count(*) > 1) twice),
       (select count(*) from shop_order o
         where not exists (select 1 from shop_payment p where p.order_id = o.id)),
       (select count(distinct b.order_id) from shop_payment_begun b
         where not exists (select 1 from shop_payment p where p.order_id = b.order_id)),
       (select count(*) from shop_order where shipped_at is not null),
       (select count(*) from shop_mail),
       (select count(*) from shop_payment where at > %(since)s);

-- name: create_order
create table if not exists shop_order (
  id integer primary key, item text not null, amount integer not null,
  placed_at double precision not null, shipped_at double precision);

-- name: create_reservation
create table if not exists shop_reservation (
  order_id integer not null, at double precision not null);

-- name: create_payment_begun
create table if not exists shop_payment_begun (
  order_id integer not null, attempt integer not null, at double precision not null);

-- name: create_payment
create table if not exists shop_payment (
  order_id integer not null, amount integer not null, attempt integer not null,
  worker text not null, at double precision not null);

-- name: create_payment_index
create index if not exists shop_payment_order on shop_payment (order_id);

-- name: create_mail
create table if not exists shop_mail (
  message_key text primary key, order_id integer not null, at double precision not null);

-- name: create_switch
create table if not exists shop_switch (name text primary key, is_on integer not null);

-- name: create_switch_position
insert into shop_switch (name, is_on) values ('gateway is down', 0)
on conflict (name) do update set is_on = 0;

-- name: drop_order
drop table if exists shop_order;

-- name: drop_reservation
drop table if exists shop_reservation;

-- name: drop_payment_begun
drop table if exists shop_payment_begun;

-- name: drop_payment
drop table if exists shop_payment;

-- name: drop_mail
drop table if exists shop_mail;

-- name: drop_switch
drop table if exists shop_switch;

-- name: drop_queue
drop schema if exists holdfast_demo cascade;
