"""Django's database connections: `django.db.connection`, or one of `django.db.connections`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from holdfast.client.providers import provider_of
from holdfast.client.providers.port import Access, Need, SyncProvider
from holdfast.core.errors import NoTransaction, TransactionAborted
from holdfast.storage.hooks import Hook
from holdfast.storage.statement import SyncExecutor

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

_FIX = "work inside `with transaction.atomic():`"


class DjangoProvider(SyncProvider):
    """A connection; inside atomic() Django tells of the commit, savepoints included."""

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        self._connection = connection

    def open(self, need: Need) -> Access[SyncExecutor]:
        connection = self._connection
        connection.validate_thread_sharing()
        connection.ensure_connection()
        if connection.needs_rollback:
            raise TransactionAborted("the block of transaction.atomic() has failed")
        if need.writes and not connection.in_atomic_block and connection.get_autocommit():
            raise NoTransaction("Django's connection is in autocommit mode", help=_FIX)
        provider = provider_of(connection.connection, _FIX)
        assert isinstance(provider, SyncProvider)
        access = provider.open(need)
        return (
            replace(access, after_commit=self._after_commit)
            if connection.in_atomic_block
            else access
        )

    def _after_commit(self, hook: Hook) -> None:
        self._connection.on_commit(hook)
