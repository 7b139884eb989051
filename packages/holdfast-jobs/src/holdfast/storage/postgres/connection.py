"""Opens psycopg connections with every limit set, and runs named statements on them and on the users' connections."""

from __future__ import annotations

import os
import socket
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import psycopg
from psycopg import AsyncConnection, AsyncRawCursor, Connection, RawCursor
from psycopg.adapt import AdaptersMap, Transformer
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq.abc import PGresult
from psycopg.rows import tuple_row
from psycopg.sql import SQL, Identifier, Literal
from psycopg.types.bool import BoolLoader
from psycopg.types.none import NoneDumper
from psycopg.types.numeric import IntLoader
from psycopg.types.string import StrDumper, TextLoader

from holdfast.core.errors import (
    NO_ROOM_WORDS,
    ConfigError,
    DatabaseUnreachable,
    NoConnection,
    UnusableUrl,
)
from holdfast.storage.operation import Row, Statement
from holdfast.storage.postgres.hosts import HOST_TIMEOUT_S, Host, hosts_of
from holdfast.storage.postgres.psycopg_internals import (
    CAN_SHARE_SESSIONS,
    Prepared,
    find_prepared,
    run_prepared,
)
from holdfast.storage.postgres.store import (
    OLDEST_VERSION,
    TESTED_VERSION,
    as_texts,
    postgres_statements,
    translate,
)

CONNECT_TIMEOUT_S = 10
_ONE_HOST = {
    "connect_timeout": CONNECT_TIMEOUT_S,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    # Keepalives do not run while something sent waits for its receipt.
    "tcp_user_timeout": 30_000,
}
# Where another host can take over, a silent one is given up before it does. We write on every connection.
_SEVERAL_HOSTS = {
    "connect_timeout": HOST_TIMEOUT_S,
    "keepalives_idle": 4,
    "keepalives_interval": 2,
    "tcp_user_timeout": 8_000,
    "target_session_attrs": "read-write",
}
STATEMENT_TIMEOUT_MS = 30_000
LOCK_TIMEOUT_MS = 5_000

# Every statement of a worker finds its rows by an index and in its order. A plan is kept until the table is analysed
# again: one made while the table was small would read all of it once it is large, and one made from statistics that say
# that nothing is due would collect and sort the whole backlog at every claim (docs/adr/0008). Parameters change nothing
# about these plans, so making one anew for each call would be a waste.
_PLANNER = {
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "plan_cache_mode": "force_generic_plan",
}
_ONLY_BY_INDEX = " ".join(f"-c {name}={value}" for name, value in _PLANNER.items())
BEGIN_BY_INDEX = "; ".join(
    [
        "begin",
        "set local jit = off",
        *(f"set local {name} = {value}" for name, value in _PLANNER.items()),
    ]
)
"""Begins a transaction with the same settings, for a session behind a pooler, which drops those of the connection."""

_BACKEND = "select pg_catalog.pg_backend_pid()"


def parse_url(url: str) -> dict[str, Any]:
    """Read a PostgreSQL URL, or say what is wrong with it."""
    try:
        return conninfo_to_dict(url)
    except psycopg.ProgrammingError as error:
        raise UnusableUrl(f"PostgreSQL rejects the URL: {str(error).strip()}") from None


def url_without_password(url: str) -> str:
    """Return the URL as it may be printed."""
    known = parse_url(url)
    user = f"{quote(known['user'], safe='')}@" if known.get("user") else ""
    if known.get("service") and not known.get("host"):
        own = f"/{quote(known['dbname'], safe='')}" if known.get("dbname") else ""
        return f"postgresql://{user}{own}?service={quote(known['service'])}"
    hosts = ",".join(
        f"{_host_in_url(host)}:{port}" if port else _host_in_url(host)
        for host, port in hosts_of(known)
    )
    return f"postgresql://{user}{hosts}/{quote(known.get('dbname') or '', safe='')}"


def _host_in_url(host: str) -> str:
    """Return a host as a URL names it: an IPv6 address in brackets, the folder of a socket quoted."""
    return f"[{host}]" if ":" in host else quote(host, safe="")


# What these mean depends on who says it.
_THIS_MACHINE = {"localhost", "127.0.0.1", "::1"}
_USUAL_PORT = "5432"


def addresses_of(url: str) -> tuple[str, ...]:
    """Return the addresses of a URL by which the same server is recognised, in whatever order they are named."""
    known = parse_url(url)
    if known.get("service") and not known.get("host"):
        return (f"service {known['service']}",)
    host = known.get("host") or known.get("hostaddr") or os.environ.get("PGHOST")
    port = known.get("port") or os.environ.get("PGPORT")
    return tuple(
        f"{_machine_of(each)}:{own or _USUAL_PORT}"
        for each, own in hosts_of({"host": host, "port": port})
    )


def _machine_of(host: str) -> str:
    is_here = host in _THIS_MACHINE or host.startswith(("/", "@"))
    return (socket.gethostname() if is_here else host).lower()


_answered: dict[str, Host] = {}


def remember_host(url: str, connection: Connection[Any] | AsyncConnection[Any]) -> None:
    """Have the host that answered tried first from now on, where the URL names several."""
    _answered[url] = (connection.info.host, str(connection.info.port))


def _among_several(url: str, known: dict[str, Any]) -> dict[str, str]:
    """Return what a URL with several hosts needs: the one that answered last first, and to learn soon of one's end."""
    hosts = hosts_of(known)
    if len(hosts) < 2:
        return {}
    given = {name: str(known.get(name) or value) for name, value in _SEVERAL_HOSTS.items()}
    if "hostaddr" in known or _answered.get(url) not in hosts:
        return given
    hosts.sort(key=lambda each: each != _answered[url])
    return given | {
        "host": ",".join(host for host, _ in hosts),
        "port": ",".join(port for _, port in hosts),
    }


def connection_string(
    url: str,
    purpose: str,
    statement_timeout_ms: int,
    only_by_index: bool = False,
    durable: bool = True,
    lock_timeout_ms: int = LOCK_TIMEOUT_MS,
) -> str:
    """The connection string of a connection of ours; the server sees its purpose and enforces its limits."""
    # None of our statements runs long enough to be worth compiling. A pooler may drop all of these: the statements' own
    # estimates stay below what a server compiles by default.
    options = (
        f"-c statement_timeout={statement_timeout_ms} -c lock_timeout={lock_timeout_ms} "
        "-c timezone=UTC -c default_transaction_isolation=read\\ committed -c jit=off "
        # Links and listeners are idle for as long as there is nothing to do; the pool closes its own after a minute.
        "-c idle_session_timeout=0 -c array_nulls=on"
    )
    if only_by_index:
        options = f"{options} {_ONLY_BY_INDEX}"
    if not durable:
        options = f"{options} -c synchronous_commit=off"
    own = parse_url(url)
    limits = {name: str(own.get(name) or value) for name, value in _ONE_HOST.items()}
    return make_conninfo(
        url,
        **limits | _among_several(url, own),
        application_name=f"holdfast {purpose}",
        # libpq reads the environment's only where there are none.
        options=f"{own.get('options') or os.environ.get('PGOPTIONS', '')} {options}".strip(),
        # What the environment or the database would choose may not be able to say every text.
        client_encoding="utf8",
    )


# The second is none: it keeps what we write as it is.
_ENCODINGS = {"UTF8", "SQL_ASCII", None}


def check_server(connection: Connection[Any] | AsyncConnection[Any]) -> None:
    """Refuse a server that lacks what our schema and statements need, and a database that cannot hold every text."""
    number = connection.info.server_version
    if number < OLDEST_VERSION * 10_000:
        raise ConfigError(
            f"the server is PostgreSQL {number // 10_000}; {OLDEST_VERSION} or newer is needed",
            help=f"upgrade the server; PostgreSQL {OLDEST_VERSION} to {TESTED_VERSION} are supported",
        )
    encoding = connection.info.parameter_status("server_encoding")
    if encoding not in _ENCODINGS:
        raise ConfigError(
            f"the database's encoding is {encoding}; UTF8 is needed",
            help="create one that can hold every text: create database NAME template template0 encoding 'UTF8'",
        )


def was_refused(error: Exception) -> bool:
    """Say whether the server itself refused a session: of several hosts the first, which is the one that answered last.

    An error at connecting bears no SQLSTATE, only words in the server's language. Its form is libpq's in each of them.
    """
    return ":  " in _first_line(error)


def unreachable(url: str, error: Exception) -> DatabaseUnreachable:
    """The error for a server that does not answer, or that refuses."""
    reason = _first_line(error).rpartition("failed: ")[2]
    lines = str(error).strip().splitlines()
    is_one = len(hosts_of(parse_url(url))) == 1
    help = None
    if "unsupported startup parameter" in str(error):
        help = "add `ignore_startup_parameters = options` to the pooler's configuration"
    elif was_refused(error):
        help = "the server answered and refused; change what its message names, there or in HOLDFAST_URL"
    has_room = not any(word in str(error) for word in NO_ROOM_WORDS)
    return (DatabaseUnreachable if has_room else NoConnection)(
        f"no connection to {url_without_password(url)}: {reason}",
        details=lines[1:3] if is_one else lines,
        help=help if has_room else None,
    )


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def is_pooled(connection: Connection[Any]) -> bool:
    """Say whether a pooler is between us and the server: it makes up the backend number that it announces."""
    row = connection.execute(_BACKEND).fetchone()
    return row is not None and row[0] != connection.info.backend_pid


async def is_pooled_async(connection: AsyncConnection[Any]) -> bool:
    """Async version of `is_pooled`."""
    cursor = await connection.execute(_BACKEND)
    row = await cursor.fetchone()
    return row is not None and row[0] != connection.info.backend_pid


# A command and not a query of pg_notify(): it needs no plan.
_NOTIFY = SQL("notify {channel}, {payload}")


def notify_statement(channel: str, payload: str) -> bytes:
    """The command that sends a payload to all who listen on a channel."""
    return _NOTIFY.format(channel=Identifier(channel), payload=Literal(payload)).as_bytes(None)


_ANY_OTHER = 0


def _own_adapters() -> AdaptersMap:
    """Know exactly the types our statements exchange, whatever was registered on psycopg itself."""
    adapters = AdaptersMap(types=psycopg.adapters.types)
    adapters.register_dumper(str, StrDumper)
    adapters.register_dumper(type(None), NoneDumper)
    adapters.register_loader(_ANY_OTHER, TextLoader)
    adapters.register_loader("text", TextLoader)
    adapters.register_loader("bool", BoolLoader)
    for integer in ("int2", "int4", "int8"):
        adapters.register_loader(integer, IntLoader)
    return adapters


_ADAPTERS = _own_adapters()


class _OwnAdapters:
    """A cursor with adapters of our own, whatever the connection's owner has registered."""

    @property
    def adapters(self) -> AdaptersMap:
        return _ADAPTERS


class OwnCursor(_OwnAdapters, RawCursor[Row]):
    """For our statements on anybody's connection."""

    def __init__(self, connection: Connection[Any]) -> None:
        super().__init__(connection, row_factory=tuple_row)

    def rows(self) -> list[Row]:
        """Return what the statement returned."""
        try:
            return self.fetchall()
        except psycopg.ProgrammingError:
            if (written := _written(self.pgresult)) is None:
                raise
            return written


class OwnAsyncCursor(_OwnAdapters, AsyncRawCursor[Row]):
    """Async version of `OwnCursor`."""

    def __init__(self, connection: AsyncConnection[Any]) -> None:
        super().__init__(connection, row_factory=tuple_row)

    async def rows(self) -> list[Row]:
        """Async version of `rows`."""
        try:
            return await self.fetchall()
        except psycopg.ProgrammingError:
            if (written := _written(self.pgresult)) is None:
                raise
            return written


def _written(result: PGresult | None) -> list[Row] | None:
    """Of a statement that returns nothing, an empty row for each that it wrote; None of any other."""
    return None if result is None or result.nfields else [()] * (result.command_tuples or 0)


def _role_of(connection: Connection[Any] | AsyncConnection[Any]) -> str | None:
    return None if connection.closed else connection.info.user


K = TypeVar("K", bound=Connection[Any] | AsyncConnection[Any])


class _StatementRunner(Generic[K]):
    def __init__(self, connection: K, schema: str) -> None:
        self.connection: K = connection
        self._statements = postgres_statements("dollar", schema)

    def find_prepared(self, statement: Statement) -> Prepared | None:
        """Return a statement as it can be sent at any later moment, None where it has to be run now."""
        compiled = self._statements[statement.name]
        return find_prepared(self.connection, compiled.data, as_texts(compiled, statement.params))

    def _rows_of(self, result: PGresult) -> list[Row]:
        if (written := _written(result)) is not None:
            return written
        loading = Transformer(_ADAPTERS)
        loading.set_pgresult(result)
        rows: list[Row] = loading.load_rows(0, result.ntuples, tuple)
        return rows

    def explain(self, error: Exception, statement: str) -> Exception:
        """Return our error for the driver's, or the driver's own; `statement` names the one that failed."""
        return translate(error, statement, _role_of(self.connection)) or error


class PsycopgExecutor(_StatementRunner[Connection[Any]]):
    """Runs statements on a sync psycopg connection."""

    def execute(self, statement: Statement) -> list[Row]:
        """Run one statement. Raises: the errors of `storage.postgres.store`."""
        compiled = self._statements[statement.name]
        values = as_texts(compiled, statement.params)
        try:
            if CAN_SHARE_SESSIONS:
                with self.connection.lock:
                    prepared = find_prepared(self.connection, compiled.data, values)
                    if prepared is not None:
                        running = run_prepared(self.connection, prepared)
                        return self._rows_of(self.connection.wait(running))
            cursor = OwnCursor(self.connection)
            cursor.execute(compiled.data, values)
            return cursor.rows()
        except (psycopg.Error, OSError) as error:
            raise self.explain(error, statement.name) from error


class PsycopgAsyncExecutor(_StatementRunner[AsyncConnection[Any]]):
    """Runs statements on an async psycopg connection."""

    async def execute(self, statement: Statement) -> list[Row]:
        """Run one statement. Raises: the errors of `storage.postgres.store`."""
        compiled = self._statements[statement.name]
        values = as_texts(compiled, statement.params)
        try:
            if CAN_SHARE_SESSIONS:
                async with self.connection.lock:
                    prepared = find_prepared(self.connection, compiled.data, values)
                    if prepared is not None:
                        running = run_prepared(self.connection, prepared)
                        return self._rows_of(await self.connection.wait(running))
            cursor = OwnAsyncCursor(self.connection)
            await cursor.execute(compiled.data, values)
            return await cursor.rows()
        except (psycopg.Error, OSError) as error:
            raise self.explain(error, statement.name) from error
