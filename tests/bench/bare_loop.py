"""The bare loop: one narrow table, claim with a token and fenced delete; no history, no input, no leases. Frozen.

It is printed beside the limit loop to show what keeping history costs anybody on this machine.
"""

from __future__ import annotations

import time
from typing import Any

import psycopg

from tests.bench.limit_loop import LONG_AGO, NIL, uuid7

TABLES = """
drop schema if exists bare_loop cascade;
create schema bare_loop;
create table bare_loop.job (
  id uuid primary key, type text not null, available_at timestamptz not null default now(), token uuid)
  with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);
create index on bare_loop.job (available_at, id);
"""

START = "insert into bare_loop.job (id, type) select unnest(%(ids)s::uuid[]), 'type'"

CLAIM = """
update bare_loop.job set token = %(token)s
 where id = any (array (
   select id from bare_loop.job
    where (available_at, id) > (%(at)s::timestamptz, %(id)s) and token is null and available_at <= now()
    order by available_at, id limit %(limit)s for update skip locked))
returning available_at, id
"""

COMPLETE = "delete from bare_loop.job where id = any (%(ids)s) and token = %(token)s"


def drain_bare(url: str, jobs: int, batch: int = 200) -> float:
    """Start and drain jobs in the barest way; return the drained jobs a second."""
    with psycopg.connect(url, autocommit=True, prepare_threshold=1) as connection:
        connection.execute(TABLES)
        for first in range(0, jobs, 1000):
            ids = [uuid7() for _ in range(min(1000, jobs - first))]
            connection.execute(START, {"ids": ids})
        mark: tuple[Any, Any] = (LONG_AGO, NIL)
        begun, done = time.perf_counter(), 0
        while True:
            token = uuid7()
            named = {"token": token, "at": mark[0], "id": mark[1], "limit": batch}
            rows = connection.execute(CLAIM, named, binary=True).fetchall()
            if not rows:
                return done / (time.perf_counter() - begun)
            mark = max(rows)
            ended = connection.execute(COMPLETE, {"ids": [row[1] for row in rows], "token": token})
            done += ended.rowcount
