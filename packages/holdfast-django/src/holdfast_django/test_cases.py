"""Running tasks and jobs in Django's own tests, inside the transaction of a `TestCase` or between committed ones.

The pytest plugin has the same as the fixture `holdfast_tasks`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import connections, transaction
from django.test import TransactionTestCase

from holdfast.client.views import JobInfo
from holdfast.core.duration import Duration
from holdfast.worker.handler_threads import AROUND_THREAD_CALLS
from holdfast.worker.worker import WorkerReport
from holdfast_django import database_url, is_in_memory
from holdfast_django.application import database_alias, load_django_app
from holdfast_django.loop_thread import close_serving_loop
from holdfast_testing.fresh_state import clear_in_transaction
from holdfast_testing.joined import JoinedDatabase
from holdfast_testing.kit import Kit

if TYPE_CHECKING:
    _Base = TransactionTestCase
else:
    _Base = object


class RunsTasks(_Base):
    """Put before `TestCase` or `TransactionTestCase`: `self.run_tasks()` runs what the test has enqueued.

    `self.holdfast` is the test kit: it moves the clock, simulates crashes and shows what was started.
    """

    holdfast: Kit

    def setUp(self) -> None:
        """Begin without jobs of other tests."""
        super().setUp()
        self.holdfast = open_django_kit()
        self.addCleanup(self.holdfast.close)

    def run_tasks(self, limit: int = 10_000, timeout: Duration = "30s") -> WorkerReport:
        """Run every task that is due, and those they lead to, in this thread if the test is one transaction."""
        return self.holdfast.run_until_idle(limit, timeout)


class CommittedKit(Kit):
    """For tests that commit. Django drops its test database, so no connection may outlive a test."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        """See `Kit`; handlers also close the connections of their threads, whatever CONN_MAX_AGE says."""
        AROUND_THREAD_CALLS.append(connections.close_all)
        super().__init__(*arguments, **named)

    def close(self) -> None:
        """Close what the test and the dashboard have opened too."""
        AROUND_THREAD_CALLS.remove(connections.close_all)
        close_serving_loop(self.app)
        self.app.close()
        super().close()

    async def _complete_async(self, work: Any, *arguments: Any) -> Any:
        # Each async test of Django's has a loop of its own.
        return await self._run_and_close(super()._complete_async(work, *arguments))


class SingleConnectionKit(Kit):
    """For a database in memory that only Django's connection reaches: each run is one transaction on that."""

    async def _refuse(self, *_: Any, **__: Any) -> Any:
        """Raises: RuntimeError."""
        raise RuntimeError(
            "Django's database is in memory, which only the test's thread can reach: name a file in TEST"
        )

    run_until_idle_async = run_one_async = run_cycle_async = _refuse

    def _complete(self, *arguments: Any) -> Any:
        with transaction.atomic(using=database_alias()):
            return super()._complete(*arguments)

    def started(self, type: str | None = None) -> list[JobInfo]:
        """See `Kit.started`."""
        with transaction.atomic(using=database_alias()):
            return super().started(type)

    def crash(self, type: str) -> JobInfo:
        """See `Kit.crash`."""
        with transaction.atomic(using=database_alias()):
            return super().crash(type)


def open_django_kit() -> Kit:
    """Return a test kit for this process's application in Django's test database, as the running test needs it."""
    app, alias = load_django_app(), database_alias()
    connection = connections[alias]
    if connection.in_atomic_block:
        return Kit.joined(app, connection)
    if not is_in_memory(connection.alias):
        return CommittedKit(app, database_url(alias), prepare=clear_in_transaction)
    database = JoinedDatabase(connection, app.database, app.schema)
    with transaction.atomic(using=alias):
        return SingleConnectionKit(
            app, app.url, app.schema, database=database, prepare=clear_in_transaction
        )
