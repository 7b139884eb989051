"""One adapter module per database library, chosen by the class of a connection and imported only then."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib import import_module
from typing import Any

from holdfast.client.adapters.base import Adapter
from holdfast.core.errors import UnsupportedConnection

_ADAPTERS = {
    "holdfast.PostgresTransaction": ("base", "OwnAdapter"),
    "holdfast.PostgresAsyncTransaction": ("base", "OwnAsyncAdapter"),
    "holdfast.SqliteTransaction": ("base", "OwnAdapter"),
    "holdfast.SqliteAsyncTransaction": ("base", "OwnAsyncAdapter"),
    "psycopg.Connection": ("psycopg", "PsycopgAdapter"),
    "psycopg.AsyncConnection": ("psycopg", "PsycopgAsyncAdapter"),
    "asyncpg.Connection": ("asyncpg", "AsyncpgAdapter"),
    "asyncpg.PoolConnectionProxy": ("asyncpg", "AsyncpgAdapter"),
    "sqlite3.Connection": ("sqlite", "SqliteAdapter"),
    "aiosqlite.Connection": ("sqlite", "AiosqliteAdapter"),
    "sqlalchemy.Session": ("sqlalchemy", "SessionAdapter"),
    "sqlalchemy.scoped_session": ("sqlalchemy", "SessionAdapter"),
    "sqlalchemy.Connection": ("sqlalchemy", "ConnectionAdapter"),
    "sqlalchemy.AsyncSession": ("sqlalchemy_async", "AsyncSessionAdapter"),
    "sqlalchemy.async_scoped_session": ("sqlalchemy_async", "AsyncSessionAdapter"),
    "sqlalchemy.AsyncConnection": ("sqlalchemy_async", "AsyncConnectionAdapter"),
    "django.BaseDatabaseWrapper": ("django", "DjangoAdapter"),
    "django.ConnectionProxy": ("django", "DjangoAdapter"),
}
_ACCEPTED = (
    "Holdfast's own transaction: with app.transaction() as tx",
    "psycopg Connection or AsyncConnection",
    "asyncpg Connection",
    "SQLAlchemy Session, AsyncSession, Connection or AsyncConnection",
    "Django's connection",
    "sqlite3 or aiosqlite Connection",
)
_MISTAKES = {
    "holdfast.TransactionScope": "enter it first: `with app.transaction() as tx`",
    "psycopg.BaseCursor": "pass the cursor's connection",
    "psycopg.BaseTransaction": "pass the connection that the transaction belongs to",
    "psycopg_pool.BasePool": "take a connection from it: `with pool.connection() as connection`",
    "psycopg2.connection": "psycopg 2 is not supported: use psycopg 3, postgresql+psycopg:// in SQLAlchemy",
    "asyncpg.Pool": "take a connection from it: `async with pool.acquire() as connection`",
    "asyncpg.Transaction": "pass the connection that the transaction belongs to",
    "sqlite3.Cursor": "pass the cursor's connection",
    "aiosqlite.Cursor": "pass the cursor's connection",
    "sqlalchemy.Engine": "take a connection from it: `with engine.begin() as connection`",
    "sqlalchemy.AsyncEngine": "take a connection from it: `async with engine.begin() as connection`",
    "sqlalchemy.sessionmaker": "create a session with it: `with maker.begin() as session`",
    "sqlalchemy.async_sessionmaker": "create a session with it: `async with maker.begin() as session`",
    "sqlalchemy.SessionTransaction": "pass the session that the transaction belongs to",
    "sqlalchemy.AsyncSessionTransaction": "pass the session that the transaction belongs to",
    "sqlalchemy.Transaction": "pass the connection that the transaction belongs to",
    "sqlalchemy.AsyncTransaction": "pass the connection that the transaction belongs to",
    "sqlalchemy.PoolProxiedConnection": "pass the Connection or Session that it was taken from",
    "django.Atomic": "pass django.db.connection inside its block",
    "django.CursorWrapper": "pass django.db.connection",
    "builtins.str": "a URL is not a connection: pass an open one",
}


_found: dict[type, Callable[..., Adapter]] = {}


def adapter_of(connection: Any, *fix: str) -> Adapter:
    """Return the adapter that wraps a connection. Raises: UnsupportedConnection.

    `fix` is how a transaction is opened in the library that the driver's connection came from.
    """
    found = _found.get(type(connection)) or _find(connection)
    return found(connection, *fix)


def _find(connection: Any) -> Callable[..., Adapter]:
    """Look up what wraps connections of a class, once: it is asked at every start. A class may bring its own."""
    own: Callable[..., Adapter] | None = getattr(type(connection), "holdfast_adapter", None)
    if own is not None:
        return _found.setdefault(type(connection), own)
    for name in _names(connection):
        if name in _ADAPTERS:
            module, adapter = _ADAPTERS[name]
            found: Callable[..., Adapter] = getattr(import_module(f"{__name__}.{module}"), adapter)
            _found[type(connection)] = found
            return found
    raise unsupported_error(connection)


def unsupported_error(connection: Any) -> UnsupportedConnection:
    """Return the error for something that is not a connection we know, with the likely remedy."""
    kind = type(connection)
    help = None
    if inspect.isawaitable(connection):
        help = "await it first"
    for name in _names(connection):
        help = _MISTAKES.get(name, help)
    return UnsupportedConnection(
        f"{kind.__module__}.{kind.__qualname__} is not a connection Holdfast can use",
        help=help,
        details=[f"accepted: {each}" for each in _ACCEPTED],
    )


def _names(connection: Any) -> list[str]:
    """Name the classes of an object by library and class, the most special one first."""
    return [
        f"{each.__module__.partition('.')[0]}.{each.__name__}" for each in type(connection).__mro__
    ]
