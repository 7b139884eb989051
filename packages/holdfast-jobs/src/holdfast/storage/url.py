"""Database URLs: which are understood, what they mean, and opening one; its driver is imported only then."""

from __future__ import annotations

import re
from typing import Literal, TypeAlias
from urllib.parse import parse_qs, urlsplit

import msgspec

from holdfast.core.errors import MissingExtra, UnusableUrl
from holdfast.storage.database import Database

Dialect: TypeAlias = Literal["sqlite", "postgresql"]

_SCHEME = re.compile(r"([a-z][a-z0-9]*)(?:\+([a-z0-9_]+))?://", re.IGNORECASE)
_DIALECTS: dict[str, Dialect] = {
    "sqlite": "sqlite",
    "postgresql": "postgresql",
    "postgres": "postgresql",
}
# SQLAlchemy's URLs name the driver as well; the database behind them is the same.
_DRIVERS: dict[Dialect, frozenset[str]] = {
    "sqlite": frozenset({"pysqlite", "aiosqlite"}),
    "postgresql": frozenset({"psycopg", "psycopg_async", "psycopg2", "asyncpg"}),
}
_FORMS = (
    "sqlite:///relative.db",
    "sqlite:////absolute/path.db",
    "sqlite:///:memory:",
    "postgresql://user:password@host:5432/database",
)


class Address(msgspec.Struct, frozen=True):
    """Where a database is: a URL without a driver's name, and for SQLite the path in it."""

    dialect: Dialect
    url: str
    path: str = ""


def parse_url(url: str) -> Address:
    """Return what a URL means. Raises: UnusableUrl with the forms that are understood."""
    dialect, rest = _split(url)
    return _sqlite(rest) if dialect == "sqlite" else _postgresql(rest)


def without_driver(url: str) -> str:
    """Return a URL without the driver that SQLAlchemy's name; others stay as they are. Raises: UnusableUrl."""
    scheme, has_driver, _ = url.partition("://")[0].partition("+")
    if not has_driver or scheme.lower() not in _DIALECTS:
        return url
    return "://".join(_split(url))


def _split(url: str) -> tuple[Dialect, str]:
    match = _SCHEME.match(url)
    if match is None:
        raise _unusable("the database URL has no scheme")
    scheme, driver = match[1].lower(), match[2]
    dialect = _DIALECTS.get(scheme)
    if dialect is None:
        raise _unusable(f"{scheme} is not a database Holdfast can use")
    if driver is not None and driver.lower() not in _DRIVERS[dialect]:
        raise _unusable(f"{driver} is not a {dialect} driver that Holdfast knows")
    return dialect, url[match.end() :]


def _sqlite(rest: str) -> Address:
    path = rest.removeprefix("/")
    if path == rest or not path:
        raise _unusable("the SQLite URL names no file: put the path after three slashes")
    if "mode=memory" in path:
        raise UnusableUrl(
            "only the connection that created this in-memory database can reach it",
            help="for Django's test database, give the test kit Django's connection, or name a file: "
            'DATABASES["default"]["TEST"] = {"NAME": BASE_DIR / "test.sqlite3"}',
        )
    if "?" in path or "\0" in path:
        raise _unusable("the SQLite URL has parameters after its path")
    return Address("sqlite", f"sqlite:///{path}", path)


def _postgresql(rest: str) -> Address:
    url = f"postgresql://{rest}"
    try:
        parts = urlsplit(url)
        _check_ports(parts.netloc)
        named = parts.path.strip("/") or parse_qs(parts.query).keys() & {"dbname", "service"}
    except ValueError:
        # The reason may repeat a part of the URL, and with it the password.
        raise _unusable("the PostgreSQL URL cannot be read") from None
    if not named:
        raise _unusable("the PostgreSQL URL names no database")
    return Address("postgresql", url)


def _check_ports(netloc: str) -> None:
    """Check the port of each host; PostgreSQL's URLs may name several. Raises: ValueError."""
    for host in netloc.rpartition("@")[2].split(","):
        port = host.rpartition("]")[2].partition(":")[2]
        if port and not 0 < int(port) < 65_536:
            raise ValueError


def _unusable(message: str) -> UnusableUrl:
    return UnusableUrl(message, details=[f"understood: {form}" for form in _FORMS])


class Pooling(msgspec.Struct, frozen=True):
    """How connections are kept: how many at most, whether statements are prepared, and how SQLite commits."""

    connections: int = 10
    prepare: bool = True
    prepare_pooled: bool = False
    synchronous: Literal["FULL", "NORMAL"] = "FULL"


def open_database(
    address: Address, schema: str, pooling: Pooling, environment: str | None = None
) -> Database:
    """Return a database that connects at its first use. Raises: MissingExtra."""
    if address.dialect == "sqlite":
        from holdfast.storage.sqlite.database import SqliteDatabase

        return SqliteDatabase(address.path, pooling.synchronous, environment=environment)
    try:
        from holdfast.storage.postgres.database import PostgresDatabase
    except ImportError as error:
        raise missing_driver(error) from error
    return PostgresDatabase(
        address.url,
        schema,
        pooling.connections,
        pooling.prepare,
        pooling.prepare_pooled,
        environment,
    )


def missing_driver(error: ImportError) -> MissingExtra:
    """Return the error for a PostgreSQL driver that could not be imported."""
    return MissingExtra(
        f"PostgreSQL needs the package {error.name or 'psycopg'}",
        help='pip install "holdfast-jobs[postgres]"',
    )
