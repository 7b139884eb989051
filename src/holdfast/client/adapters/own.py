"""Transactions of our own, which run our statements and report their commit themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.client.adapters.base import Access, AsyncAdapter, Need, SyncAdapter
from holdfast.storage.operation import AsyncExecutor, SyncExecutor

if TYPE_CHECKING:
    from holdfast.storage.postgres.transaction import PostgresAsyncTransaction, PostgresTransaction
    from holdfast.storage.sqlite.transaction import SqliteAsyncTransaction, SqliteTransaction


class OwnSqliteAdapter(SyncAdapter):
    """A transaction on SQLite; it begins with its first statement and refuses any after its end."""

    def __init__(self, transaction: SqliteTransaction) -> None:
        self._transaction = transaction

    def open(self, need: Need) -> Access[SyncExecutor]:
        need.check_dialect("sqlite")
        return Access(self._transaction, self._transaction.after_commit)


class OwnSqliteAsyncAdapter(AsyncAdapter):
    """Async version of the adapter above."""

    def __init__(self, transaction: SqliteAsyncTransaction) -> None:
        self._transaction = transaction

    async def open(self, need: Need) -> Access[AsyncExecutor]:
        need.check_dialect("sqlite")
        return Access(self._transaction, self._transaction.after_commit)


class OwnPostgresAdapter(SyncAdapter):
    """A transaction on PostgreSQL, whose connection may be in other hands after its end."""

    def __init__(self, transaction: PostgresTransaction) -> None:
        self._transaction = transaction

    def open(self, need: Need) -> Access[SyncExecutor]:
        need.check_dialect("postgresql")
        self._transaction.check_open()
        return Access(self._transaction, self._transaction.after_commit)


class OwnPostgresAsyncAdapter(AsyncAdapter):
    """Async version of the adapter above."""

    def __init__(self, transaction: PostgresAsyncTransaction) -> None:
        self._transaction = transaction

    async def open(self, need: Need) -> Access[AsyncExecutor]:
        need.check_dialect("postgresql")
        self._transaction.check_open()
        return Access(self._transaction, self._transaction.after_commit)
