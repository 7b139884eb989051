"""The tables of a service."""

CREATE = """
create table received (place bigserial primary key, key text not null, n bigint not null);
create table shipped (n bigint not null, job_id text not null);
"""

ORDER_BREAKS = """
select count(*)
  from (select n, lag(n) over (partition by key order by place) as before from received) r
 where n <= before
"""
