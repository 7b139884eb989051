"""The kinds of connection a caller may hold, for type checkers: sync ones give a value, async ones an awaitable.

They are told apart by the colour of their methods, so that no library has to be installed for it.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Protocol, TypeAlias

from holdfast.storage.database import AsyncTransaction, Transaction


class SyncConnection(Protocol):
    """psycopg Connection, SQLAlchemy Session and Connection, Django's connection, sqlite3 Connection."""

    def commit(self) -> None: ...


class AsyncConnection(Protocol):
    """psycopg AsyncConnection, SQLAlchemy AsyncSession and AsyncConnection, aiosqlite Connection."""

    def commit(self) -> Coroutine[Any, Any, None]: ...


class AsyncpgConnection(Protocol):
    """asyncpg Connection, which commits through its transactions only."""

    def is_in_transaction(self) -> bool: ...


SyncTx: TypeAlias = Transaction | SyncConnection
AsyncTx: TypeAlias = AsyncTransaction | AsyncConnection | AsyncpgConnection
