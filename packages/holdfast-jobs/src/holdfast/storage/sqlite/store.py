"""The SQLite store: the shared aggregates, overridden where an operation needs several statements."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from holdfast.storage.sql_loader import dialect_statements, without_comments
from holdfast.storage.sqlite.jobs import (
    SqliteBlockerStore,
    SqliteChainStore,
    SqliteDebounceStore,
    SqliteJobStore,
    SqliteOnFailedStore,
)
from holdfast.storage.sqlite.leases import SqliteLeaseStore, SqliteWorkerStore
from holdfast.storage.sqlite.limits import SqliteLimitStore
from holdfast.storage.sqlite.log import SqliteLogStore
from holdfast.storage.sqlite.steps import SqliteSignalStore, SqliteStepStore
from holdfast.storage.store import Store
from holdfast.storage.store.schema import ANYWHERE, DatabasePlace

PACKAGE = "holdfast.storage.sqlite"


class SqliteStore(Store):
    """The store on SQLite."""

    dialect = "sqlite"

    def __init__(self, place: DatabasePlace = ANYWHERE) -> None:
        super().__init__(place)
        self.jobs = SqliteJobStore()
        self.leases = SqliteLeaseStore()
        self.limits = SqliteLimitStore()
        self.log = SqliteLogStore()
        self.chains = SqliteChainStore()
        self.blockers = SqliteBlockerStore()
        self.debounce = SqliteDebounceStore()
        self.on_failed = SqliteOnFailedStore()
        self.steps = SqliteStepStore()
        self.signals = SqliteSignalStore()
        self.workers = SqliteWorkerStore()


@cache
def sqlite_statements() -> Mapping[str, str]:
    """Every statement as the driver takes it, without the comments above it.

    The driver opens a transaction by itself only for a text that begins with the verb of a write.
    """
    return {name: without_comments(text) for name, text in dialect_statements("sqlite").items()}
