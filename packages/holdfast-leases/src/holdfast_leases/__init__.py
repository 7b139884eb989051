"""Leases for rows of your own tables, by the rules that jobs follow."""

from holdfast_leases.kept_rows import AsyncKeptRows, KeptRows
from holdfast_leases.leased_table import (
    PUSH_BACKOFF,
    AsyncLeasedTable,
    Claimed,
    LeasedTable,
    Retried,
    RowRetry,
    to_datetime,
    to_instant,
)

__all__ = [
    "PUSH_BACKOFF",
    "AsyncKeptRows",
    "AsyncLeasedTable",
    "Claimed",
    "KeptRows",
    "LeasedTable",
    "Retried",
    "RowRetry",
    "to_datetime",
    "to_instant",
]
