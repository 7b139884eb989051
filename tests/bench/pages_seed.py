"""Writes the mix of jobs into a database: by COPY into PostgreSQL, row by row into SQLite."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import psycopg

from tests.bench.handlers import make_app
from tests.bench.pages_mix import Mix, Rows

AT_ONCE = 20_000
NEVER = 9_223_372_036_854_775_807

COPY: Final = {
    "job": """
copy holdfast.job (id, chain_id, chain_index, type, input, priority, blockers, created_at) from stdin
""",
    "queue": """
copy holdfast.queue (job_id, type, priority, available_at, attempt, fence, token) from stdin
""",
    "outcome": """
copy holdfast.outcome (job_id, type, state, continued, output, error, fingerprint, attempts,
  crashes, fence, worker, started_at, finished_at) from stdin
""",
    "attempt": """
copy holdfast.attempt (job_id, fence, attempt, kind, worker, started_at, ended_at, error) from stdin
""",
    "blocker": """
copy holdfast.blocker (job_id, position, chain_id, on_failure, open) from stdin
""",
    "lease": """
copy holdfast.lease (token, worker, claimed_at, expires_at, lease_ms, max_attempts,
  backoff_base_ms, backoff_cap_ms, job_ids) from stdin
""",
    "tally": """
copy holdfast.tally (at, type, started, completed, failed, cancelled) from stdin
""",
    "worker": """
copy holdfast.worker (id, name, host, pid, version, slots, types, started_at, seen_at, counters) from stdin
""",
}
INSERT: Final = {
    "job": """
insert into holdfast_job (id, chain_id, chain_index, type, input, priority, blockers, created_at)
values (?, ?, ?, ?, ?, ?, ?, ?)
""",
    "queue": """
insert into holdfast_queue (job_id, type, priority, available_at, attempt, fence, token)
values (?, ?, ?, ?, ?, ?, ?)
""",
    "outcome": """
insert into holdfast_outcome (job_id, type, state, continued, output, error, fingerprint, attempts,
  crashes, fence, worker, started_at, finished_at)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
""",
    "attempt": """
insert into holdfast_attempt (job_id, fence, attempt, kind, worker, started_at, ended_at, error)
values (?, ?, ?, ?, ?, ?, ?, ?)
""",
    "blocker": """
insert into holdfast_blocker (job_id, position, chain_id, on_failure, open)
values (?, ?, ?, ?, ?)
""",
    "lease": """
insert into holdfast_lease (token, worker, claimed_at, expires_at, lease_ms, max_attempts,
  backoff_base_ms, backoff_cap_ms, job_ids)
values (?, ?, ?, ?, ?, ?, ?, ?, ?)
""",
    "tally": """
insert into holdfast_tally (at, type, started, completed, failed, cancelled)
values (?, ?, ?, ?, ?, ?)
""",
    "worker": """
insert into holdfast_worker (id, name, host, pid, version, slots, types, started_at, seen_at, counters)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
""",
}


def seed_pages(url: str, count: int) -> None:
    """Fill a database that has our tables and nothing in them."""
    if url.startswith("sqlite"):
        _seed_sqlite(url.removeprefix("sqlite:///"), count)
    else:
        _seed_postgres(url, count)
    with closing(make_app(url)) as app:
        app.database.run(app.database.store.workers.fold_tally(count))


def _seed_postgres(url: str, count: int) -> None:
    mix = Mix(count, _now(), _text_of, lambda ids: "{" + ",".join(ids) + "}")
    with psycopg.connect(url, autocommit=True) as connection:
        for rows in mix.batches(AT_ONCE):
            with connection.transaction():
                _copy(connection, rows)
        connection.execute("vacuum analyze")
        connection.execute("checkpoint")


def _copy(connection: psycopg.Connection[Any], rows: Rows) -> None:
    for table, lines in rows.items():
        with connection.cursor().copy(COPY[table].encode()) as writing:
            for line in lines:
                writing.write_row(line)


def _seed_sqlite(path: str, count: int) -> None:
    mix = Mix(
        count,
        _now(),
        lambda at: NEVER if at is None else at,
        lambda ids: msgspec.json.encode(ids).decode(),
    )
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for rows in mix.batches(AT_ONCE):
            connection.execute("begin immediate")
            for table, lines in rows.items():
                connection.executemany(INSERT[table], lines)
            connection.execute("commit")
        connection.execute("analyze")
        connection.execute("pragma wal_checkpoint(truncate)")


def _now() -> int:
    return time.time_ns() // 1000


def _text_of(at: int | None) -> str:
    """Write an instant as PostgreSQL reads it; none at all is a job that is blocked."""
    if at is None:
        return "infinity"
    return datetime.fromtimestamp(at / 1_000_000, UTC).isoformat()
