"""The limit loop on SQLite: the same protocol over one connection, a transaction per claim and completion. Frozen."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from typing import Literal

from tests.bench.limit_loop import uuid7
from tests.bench.payload import INPUT_TEXT, OUTPUT_TEXT

TABLES = """
create table job (
  id text primary key, chain_id text not null, chain_index integer not null, type text not null, input text,
  priority integer, planned_at integer, key text, created_at integer not null, trace text);
create unique index job_chain on job (chain_id, chain_index);
create table queue (
  job_id text primary key, type text not null, priority integer not null, available_at integer not null,
  attempt integer not null default 0, max_attempts integer, crashes integer not null default 0,
  fence integer not null default 0, token text, awaited integer not null default 0) without rowid;
create index queue_claim on queue (type, priority, available_at, job_id);
create table lease (token text primary key, worker text, expires_at integer, job_ids text);
create table outcome (
  job_id text primary key, type text, state text not null, output text, error text, fingerprint text, attempts integer,
  crashes integer, fence integer, token text, started_at integer, finished_at integer not null);
"""

CLAIM = """
update queue set attempt = attempt + 1, fence = max(fence + 1, ?1), token = ?2
 where job_id in (
   select job_id from queue
    where type = 'noop' and priority = 5 and (available_at, job_id) > (?3, ?4) and available_at <= ?1 and token is null
    order by available_at, job_id limit ?5)
returning available_at, job_id
"""
INPUTS = """
select j.id, j.input, q.attempt from queue q join job j on j.id = q.job_id
 where q.job_id in (select value from json_each(?))
"""
LEASE = "insert into lease values (?, 'limit', ?, ?)"
OUTCOME = """
insert into outcome (job_id, type, state, output, attempts, crashes, fence, token, started_at, finished_at)
select job_id, type, 'completed', ?3, attempt, crashes, fence, token, ?4, ?4 from queue where job_id = ?1 and token = ?2
"""
DELETE = "delete from queue where job_id = ? and token = ?"


class SqliteLoop:
    """One connection to a new file."""

    def __init__(
        self, path: Path, synchronous: Literal["FULL", "NORMAL"], batch: int = 200
    ) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._batch = batch
        self._connection.execute("pragma journal_mode = wal")
        self._connection.execute(
            "pragma synchronous = full" if synchronous == "FULL" else "pragma synchronous = normal"
        )
        self._connection.executescript(TABLES)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def start(self, jobs: int) -> None:
        """Write jobs, a thousand in a transaction."""
        execute = self._connection.execute
        for first in range(0, jobs, 1000):
            ids = [str(uuid7()) for _ in range(min(1000, jobs - first))]
            now = time.time_ns() // 1000
            execute("begin immediate")
            self._connection.executemany(
                "insert into job values (?, ?, 0, 'noop', ?, 5, null, null, ?, null)",
                [(id, id, INPUT_TEXT, now) for id in ids],
            )
            self._connection.executemany(
                "insert into queue (job_id, type, priority, available_at) values (?, 'noop', 5, ?)",
                [(id, now) for id in ids],
            )
            execute("commit")

    def drain(self) -> float:
        """Claim and complete until nothing is due; return the jobs a second."""
        mark, done, begun = (0, ""), 0, time.perf_counter()
        while True:
            token = str(uuid7())
            rows = self._claim(token, mark)
            if not rows:
                return done / (time.perf_counter() - begun)
            mark = max(rows)
            done += self._complete(token, [row[1] for row in rows])

    def _claim(self, token: str, mark: tuple[int, str]) -> list[tuple[int, str]]:
        execute, now = self._connection.execute, time.time_ns() // 1000
        execute("begin immediate")
        rows = execute(CLAIM, (now, token, *mark, self._batch)).fetchall()
        if rows:
            ids = "[" + ",".join(f'"{row[1]}"' for row in rows) + "]"
            execute(LEASE, (token, now + 60_000_000, ids))
            execute(INPUTS, (ids,)).fetchall()
        execute("commit")
        return rows

    def _complete(self, token: str, ids: list[str]) -> int:
        connection, now = self._connection, time.time_ns() // 1000
        connection.execute("begin immediate")
        connection.executemany(OUTCOME, [(id, token, OUTPUT_TEXT, now) for id in ids])
        ended = connection.executemany(DELETE, [(id, token) for id in ids]).rowcount
        connection.execute("delete from lease where token = ?", (token,))
        connection.execute("commit")
        return ended
