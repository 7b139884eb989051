"""A worker's connection for one purpose: opened at first use, replaced when lost, bounded in every wait."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

import psycopg

from holdfast.core.errors import ConnectionClosed, DatabaseUnreachable
from holdfast.storage.postgres.connect import connection_string, unreachable
from holdfast.storage.postgres.executor import PsycopgAsyncExecutor
from holdfast.storage.postgres.pooler import is_pooled_async
from holdfast.storage.postgres.waiting import LinkConnection
from holdfast.storage.statement import Op, run_async

T = TypeVar("T")

# The server ends a statement at its own limit; this much later we no longer believe that it is there.
PATIENCE_S = 2.0


class PostgresLink:
    """See `storage.database.Link`."""

    def __init__(
        self,
        url: str,
        schema: str,
        purpose: str,
        statement_timeout_ms: int,
        prepare: bool,
        durable: bool,
    ) -> None:
        self.purpose = purpose
        self._url = url
        self._schema = schema
        self._statement_timeout_ms = statement_timeout_ms
        self._prepare_threshold = 2 if prepare else None
        self._durable = durable
        self._connection: LinkConnection | None = None
        self._executor: PsycopgAsyncExecutor | None = None
        self._busy = asyncio.Lock()

    async def run(self, op: Op[T]) -> T:
        async with self._busy:
            executor = await self._opened()
            return await self._bounded(run_async(op, executor))

    async def run_atomic(self, op: Op[T]) -> T:
        async with self._busy:
            executor = await self._opened()
            return await self._bounded(self._atomic(op, executor))

    async def close(self) -> None:
        connection, self._connection, self._executor = self._connection, None, None
        if connection is not None:
            await connection.close()

    async def _opened(self) -> PsycopgAsyncExecutor:
        if self._executor is not None and self._connection is not None:
            if not self._connection.closed and not self._connection.broken:
                return self._executor
            await self.close()
        # On Python 3.11 psycopg may lose a cancellation that comes as the server answers, and with it its caller's end.
        task = asyncio.create_task(self._open())
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            self._abandon()
            raise
        return task.result()

    async def _open(self) -> PsycopgAsyncExecutor:
        text = connection_string(
            self._url,
            self.purpose,
            self._statement_timeout_ms,
            only_by_index=True,
            durable=self._durable,
        )
        try:
            self._connection = await LinkConnection.connect(
                text, autocommit=True, prepare_threshold=self._prepare_threshold
            )
            if self._prepare_threshold is not None and await is_pooled_async(self._connection):
                self._connection.prepare_threshold = None
        except (psycopg.OperationalError, OSError) as error:
            raise unreachable(self._url, error) from error
        self._executor = PsycopgAsyncExecutor(self._connection, self._schema)
        return self._executor

    async def _atomic(self, op: Op[T], executor: PsycopgAsyncExecutor) -> T:
        async with executor.connection.transaction():
            return await run_async(op, executor)

    async def _bounded(self, work: Coroutine[Any, Any, T]) -> T:
        limit = self._statement_timeout_ms / 1000 + PATIENCE_S
        task = asyncio.create_task(work)
        try:
            answered, _ = await asyncio.wait([task], timeout=limit)
        except asyncio.CancelledError:
            # A statement that was cut off in the middle leaves the connection in an unknown state.
            await self._cut_off(task)
            raise
        if not answered:
            await self._cut_off(task)
            raise DatabaseUnreachable(f"no answer on the {self.purpose} connection for {limit:g} s")
        try:
            return task.result()
        except (ConnectionClosed, DatabaseUnreachable, psycopg.OperationalError) as error:
            self._abandon()
            if isinstance(error, DatabaseUnreachable):
                raise
            raise DatabaseUnreachable(f"the {self.purpose} connection was lost: {error}") from error

    async def _cut_off(self, task: asyncio.Task[T]) -> None:
        """End a statement without the server's help: cancelled politely, psycopg would wait for the answer."""
        if self._connection is not None and not self._connection.closed:
            with socket.socket(fileno=os.dup(self._connection.fileno())) as line, suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)
        await asyncio.gather(task, return_exceptions=True)
        self._abandon()

    def _abandon(self) -> None:
        connection, self._connection, self._executor = self._connection, None, None
        if connection is not None:
            # close() on a dead peer could wait; the socket is all we want to be rid of.
            connection.pgconn.finish()
