"""Reading beside the writer: one consistent view, ended when it takes too long."""

from __future__ import annotations

from typing import TypeVar

from holdfast.storage.sqlite.executor import SqliteExecutor
from holdfast.storage.sqlite.limit import limited
from holdfast.storage.sqlite.pool import Lender
from holdfast.storage.statement import Op, run

T = TypeVar("T")


def read_apart(lender: Lender, op: Op[T], wait_s: float, timeout_ms: int | None) -> T:
    """Run an operation that only reads. Raises: DatabaseBusy when it takes longer than the timeout."""
    connection = lender.take(wait_s)
    try:
        with limited(connection) as limit:
            limit.allow(None if timeout_ms is None else timeout_ms / 1000)
            connection.execute("begin")
            try:
                return run(op, SqliteExecutor(connection))
            finally:
                limit.allow(None)
                if connection.in_transaction:
                    connection.execute("rollback")
    finally:
        lender.give(connection)
