"""Django's database connections: `django.db.connection`, or one of `django.db.connections`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.client.adapters import adapter_of
from holdfast.client.adapters.base import Access, Need, SyncAdapter, review_hooks
from holdfast.core.errors import NoTransaction, TransactionAborted
from holdfast.storage.after_commit import Hooks
from holdfast.storage.operation import SyncExecutor, run

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

_FIX = "use `with transaction.atomic():`"


class DjangoAdapter(SyncAdapter):
    """A connection; inside atomic() Django reports the commit, but not every savepoint that was rolled back."""

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
        adapter = adapter_of(connection.connection, _FIX)
        assert isinstance(adapter, SyncAdapter)
        access = adapter.open(need)
        if not connection.in_atomic_block:
            return access
        return access._replace(after_commit=self._hooks(need, access.executor).add)

    def _hooks(self, need: Need, executor: SyncExecutor) -> Hooks:
        """Those of the block that is open now; in one block they are reviewed together, by one statement."""
        connection = self._connection
        if connection.run_on_commit:
            savepoints, waiting = connection.run_on_commit[-1][:2]
            if isinstance(waiting, _Waiting) and savepoints == set(connection.savepoint_ids):
                return waiting.hooks
        waiting = _Waiting(need, executor)
        connection.on_commit(waiting)
        return waiting.hooks


class _Waiting:
    """Hooks that wait for Django's commit."""

    def __init__(self, need: Need, executor: SyncExecutor) -> None:
        self.hooks = Hooks()
        self._need = need
        self._executor = executor

    def __call__(self) -> None:
        """Ask on the same connection what holds, and do it."""
        with review_hooks(self.hooks):
            run(self.hooks.review(self._need.store), self._executor)
        self.hooks.run()
