"""The database behind a worker's back: business rows, other people's transactions, and leases that end at once."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import psycopg
from psycopg import sql

from tests.contract.tables import PostgresTables, SqliteTables


class Ledger(Protocol):
    """What tests do to the database without Holdfast."""

    write_effect: str
    """A statement with one parameter, for a handler to write a row of its own; see `effects`."""

    def effects(self) -> list[str]:
        """Read what handlers wrote, in order."""

    def expire(self, worker: str | None = None) -> None:
        """Let the leases of a worker, or all of them, have ended a minute ago."""

    def postpone(self, job_ids: list[str]) -> None:
        """Let jobs be due in an hour, so that nobody claims them meanwhile."""

    def leases(self) -> list[str]:
        """Read who holds leases that bear jobs."""

    def live(self) -> int:
        """Count the jobs that have not ended."""

    def state(self, job_id: str) -> str | None:
        """Read a job's state as it is committed now."""

    def delete(self, table: str, job_id: str) -> None:
        """Delete a job's row in one of Holdfast's tables, as somebody does by SQL."""

    def pretend_copied(self) -> None:
        """Let the database be one that was made under another name."""

    def rows(self, table: str) -> int:
        """Count the rows of one of Holdfast's tables."""

    def lock(self, job_id: str) -> Any:
        """Hold a job's live row in somebody's open transaction, as a context."""

    def lock_everything(self) -> Any:
        """Hold every table in somebody's open transaction, as a context."""

    def end_sessions(self) -> int:
        """End the sessions of every worker, as an administrator would; return how many there were."""

    def waits_for_a_lock(self) -> bool:
        """Say whether anybody waits for somebody's transaction."""


_TABLES = "select tablename from pg_tables where schemaname = 'holdfast'"
_END_SESSIONS = """
select count(pg_terminate_backend(pid)) from pg_stat_activity
 where datname = current_database() and pid <> pg_backend_pid()
   and application_name in ('holdfast claim', 'holdfast complete', 'holdfast heartbeat', 'holdfast reaper')
"""


class PostgresLedger:
    """See `Ledger`."""

    write_effect = "insert into effect (note) values (%s)"

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection = psycopg.connect(url, autocommit=True)
        self._connection.execute("drop table if exists effect")
        self._connection.execute("create table effect (id serial, note text)")
        self._tables = PostgresTables(url)
        self._tables.clear()

    def effects(self) -> list[str]:
        return [row[0] for row in self._connection.execute("select note from effect order by id")]

    def expire(self, worker: str | None = None) -> None:
        self._connection.execute(
            "update holdfast.lease set expires_at = now() - interval '1 minute'"
            " where %(worker)s::text is null or worker = %(worker)s",
            {"worker": worker},
        )

    def postpone(self, job_ids: list[str]) -> None:
        self._connection.execute(
            "update holdfast.queue set available_at = now() + interval '1 hour'"
            " where job_id = any (%s::uuid[])",
            [job_ids],
        )

    def leases(self) -> list[str]:
        rows = self._connection.execute(
            "select l.worker from holdfast.lease l join holdfast.queue q using (token)"
        )
        return [row[0] for row in rows]

    def live(self) -> int:
        (count,) = self._connection.execute("select count(*) from holdfast.queue").fetchall()[0]
        return int(count)

    def state(self, job_id: str) -> str | None:
        row = self._connection.execute(
            "select state from holdfast.jobs where id = %s", [job_id]
        ).fetchone()
        return None if row is None else str(row[0])

    def delete(self, table: str, job_id: str) -> None:
        statement = {
            "job": "delete from holdfast.job where id = %s",
            "queue": "delete from holdfast.queue where job_id = %s",
        }
        self._connection.execute(statement[table], [job_id])

    def pretend_copied(self) -> None:
        self._connection.execute("update holdfast.identity set database_name = 'production'")

    def rows(self, table: str) -> int:
        return len(self._tables.read()[table])

    @contextmanager
    def lock(self, job_id: str) -> Iterator[None]:
        with psycopg.connect(self._url) as somebody:
            somebody.execute("select 1 from holdfast.queue where job_id = %s for update", [job_id])
            yield
            somebody.rollback()

    @contextmanager
    def lock_everything(self) -> Iterator[None]:
        with psycopg.connect(self._url) as somebody:
            names = [row[0] for row in somebody.execute(_TABLES)]
            tables = sql.SQL(", ").join(sql.Identifier("holdfast", name) for name in names)
            somebody.execute(sql.SQL("lock table {} in access exclusive mode").format(tables))
            yield
            somebody.rollback()

    def end_sessions(self) -> int:
        row = self._connection.execute(_END_SESSIONS).fetchone()
        assert row is not None
        return int(row[0])

    def waits_for_a_lock(self) -> bool:
        waiting = self._connection.execute(
            "select 1 from pg_stat_activity"
            " where datname = current_database() and wait_event_type = 'Lock'"
        )
        return waiting.fetchone() is not None

    def close(self) -> None:
        self._tables.close()
        self._connection.close()


class SqliteLedger:
    """See `Ledger`. In SQLite somebody's open transaction holds the whole file."""

    write_effect = "insert into effect (note) values (?)"

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection = sqlite3.connect(
            path, isolation_level=None, timeout=10, check_same_thread=False
        )
        self._connection.execute("create table effect (id integer primary key, note text)")

    def effects(self) -> list[str]:
        return [row[0] for row in self._connection.execute("select note from effect order by id")]

    def expire(self, worker: str | None = None) -> None:
        self._connection.execute(
            "update holdfast_lease set expires_at = (select now from holdfast_clock) - 60000000"
            " where :worker is null or worker = :worker",
            {"worker": worker},
        )

    def postpone(self, job_ids: list[str]) -> None:
        self._connection.executemany(
            "update holdfast_queue set available_at = (select now from holdfast_clock) + 3600000000"
            " where job_id = ?",
            [(each,) for each in job_ids],
        )

    def leases(self) -> list[str]:
        rows = self._connection.execute(
            "select l.worker from holdfast_lease l join holdfast_queue q using (token)"
        )
        return [row[0] for row in rows]

    def live(self) -> int:
        (count,) = self._connection.execute("select count(*) from holdfast_queue").fetchall()[0]
        return int(count)

    def state(self, job_id: str) -> str | None:
        row = self._connection.execute(
            "select state from holdfast_jobs where id = ?", [job_id]
        ).fetchone()
        return None if row is None else str(row[0])

    def delete(self, table: str, job_id: str) -> None:
        statement = {
            "job": "delete from holdfast_job where id = ?",
            "queue": "delete from holdfast_queue where job_id = ?",
        }
        self._connection.execute(statement[table], [job_id])

    def pretend_copied(self) -> None:
        self._connection.execute("update holdfast_identity set database_name = 'production'")

    def rows(self, table: str) -> int:
        tables = SqliteTables(self._path)
        try:
            return len(tables.read()[f"holdfast_{table}"])
        finally:
            tables.close()

    @contextmanager
    def lock(self, job_id: str) -> Iterator[None]:
        self._connection.execute("begin immediate")
        try:
            yield
        finally:
            self._connection.execute("rollback")

    @contextmanager
    def lock_everything(self) -> Iterator[None]:
        with self.lock(""):
            yield

    def end_sessions(self) -> int:
        return 0

    def waits_for_a_lock(self) -> bool:
        raise NotImplementedError("SQLite does not tell who waits")

    def close(self) -> None:
        self._connection.close()
