"""asyncpg: its connections, and those that its pool lends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from holdfast.client.adapters.base import Access, AsyncAdapter, Need
from holdfast.core.errors import ConnectionClosed, NoTransaction
from holdfast.storage.operation import AsyncExecutor, Row, Statement
from holdfast.storage.postgres.store import as_texts, postgres_statements, translate

_FIX = "use `async with connection.transaction():`"


class DriverConnection(Protocol):
    """What we use of a connection."""

    def is_closed(self) -> bool: ...

    def is_in_transaction(self) -> bool: ...

    async def _execute(
        self,
        query: str,
        args: Sequence[Any],
        limit: int,
        timeout: float | None,
        *,
        ignore_custom_codec: bool,
    ) -> list[Any]: ...


class AsyncpgAdapter(AsyncAdapter):
    """A connection with an open transaction; asyncpg never begins one by itself."""

    def __init__(self, connection: DriverConnection, fix: str = _FIX) -> None:
        self._connection = connection
        self._fix = fix

    async def open(self, need: Need) -> Access[AsyncExecutor]:
        need.check_dialect("postgresql")
        # A connection that went back to its pool refuses even these questions.
        with _translate_errors("the check of the connection"):
            if self._connection.is_closed():
                raise ConnectionClosed("the asyncpg connection is closed")
            begun = self._connection.is_in_transaction()
        if need.writes and not begun:
            raise NoTransaction("the asyncpg connection has no open transaction", help=self._fix)
        return Access(AsyncpgExecutor(self._connection, need.schema))


class AsyncpgExecutor:
    """Runs statements on an asyncpg connection."""

    def __init__(self, connection: DriverConnection, schema: str) -> None:
        self._connection = connection
        self._statements = postgres_statements("dollar", schema)

    async def execute(self, statement: Statement) -> list[Row]:
        """Run one statement. Raises: the errors of `storage.postgres.store`."""
        compiled = self._statements[statement.name]
        with _translate_errors(statement.name):
            # fetch() would pass our text through codecs that the connection's owner has set;
            # asyncpg leaves them out of its own queries in this way, and has no public one.
            records = await self._connection._execute(
                compiled.text,
                as_texts(compiled, statement.params),
                0,
                None,
                ignore_custom_codec=True,
            )
        return [tuple(record) for record in records]


@contextmanager
def _translate_errors(doing: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        ours = translate(error, doing)
        if ours is None or ours is error:
            raise
        raise ours from error
