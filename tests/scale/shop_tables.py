"""The tables of a service."""

CREATE = """
create table received (place bigserial primary key, key text not null, n bigint not null);
create table shipped (n bigint not null, job_id text not null);
"""
