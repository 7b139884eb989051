"""The partitions of the log on PostgreSQL: made, attached, detached and dropped beside publishers that go on."""

from __future__ import annotations

import logging
from contextlib import suppress
from types import TracebackType
from typing import Any

import psycopg
from psycopg import Connection, sql

from holdfast.storage.postgres.connection import connection_string
from holdfast.storage.postgres.hosts import connect

log = logging.getLogger("holdfast.streams")

LOCK_TIMEOUT_MS = 100
"""How long a publisher may wait behind one of these statements."""

_CREATE = sql.SQL(
    "create table {partition} (like {log} including defaults including indexes, "
    "constraint {check} check (part = {part}))"
)
_ATTACH = sql.SQL("alter table {log} attach partition {partition} for values in ({part})")
_DROP_CHECK = sql.SQL("alter table {partition} drop constraint if exists {check}")
_DETACH = sql.SQL("alter table {log} detach partition {partition} concurrently")
_FINISH = sql.SQL("alter table {log} detach partition {partition} finalize")
_DROP = sql.SQL("drop table if exists {partition}")


class PartitionDdl:
    """Changes the partitions of one log, on a connection of its own. A statement that finds a lock taken gives up."""

    def __init__(self, url: str, schema: str) -> None:
        self._url = url
        self._schema = schema
        self.is_refused = False

    def __enter__(self) -> PartitionDdl:
        text = connection_string(self._url, "log upkeep", 0, lock_timeout_ms=LOCK_TIMEOUT_MS)
        self._connection = connect(Connection[Any], text, autocommit=True, prepare_threshold=None)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._connection.close()

    def create(self, part: int) -> bool:
        """Make the partition of a part; False when that has to wait, or this role may not."""
        names = self._names(part)
        try:
            # A table that an interrupted run has left is attached as it is, unless that run has come to do so.
            with suppress(psycopg.errors.DuplicateTable):
                self._connection.execute(_CREATE.format(**names))
            with suppress(psycopg.errors.WrongObjectType):
                self._connection.execute(_ATTACH.format(**names))
            self._connection.execute(_DROP_CHECK.format(**names))
        except psycopg.errors.InsufficientPrivilege:
            self.is_refused = True
            log.info("this role may not make partitions; old events are deleted in batches")
            return False
        except psycopg.errors.LockNotAvailable:
            return False
        return True

    def remove(self, part: int) -> bool:
        """Remove a partition; False when that has to wait. Nobody waits for this, so it may take its time."""
        names = self._names(part)
        try:
            self._connection.execute("set lock_timeout = 0")
            self._connection.execute(_DETACH.format(**names))
        except psycopg.errors.ObjectNotInPrerequisiteState:
            # An interrupted run has begun to detach it.
            self._connection.execute(_FINISH.format(**names))
        except psycopg.errors.UndefinedTable:
            # An interrupted run has detached it, and maybe dropped it.
            pass
        self._connection.execute(_DROP.format(**names))
        return True

    def _names(self, part: int) -> dict[str, sql.Composable]:
        return {
            "log": sql.Identifier(self._schema, "log"),
            "partition": sql.Identifier(self._schema, f"log_{part}"),
            "check": sql.Identifier(f"log_{part}_part"),
            "part": sql.Literal(part),
        }
