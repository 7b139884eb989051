"""Checks of a SQLite file."""

from __future__ import annotations

import msgspec

from holdfast.scheduler.doctor import Finding, ok, warning
from holdfast.scheduler.doctor.declared_schema import check_indexes

SHORT_WAIT_MS = 1_000
MANY_FREE_PAGES = 10_000

_SYNCHRONOUS = {0: "OFF", 1: "NORMAL", 2: "FULL", 3: "EXTRA"}


class FileStats(msgspec.Struct, frozen=True):
    """What SQLite reports about the file."""

    journal: str
    synchronous: int
    busy_timeout: int
    pages: int
    free_pages: int
    page_size: int
    indexes: list[str]


def check_sqlite(document: str, path: str) -> list[Finding]:
    """Check what SQLite reported about the file."""
    stats = msgspec.json.decode(document, type=FileStats)
    return [
        _check_journal(stats, path),
        _check_synchronous(stats),
        _check_busy(stats),
        _check_space(stats, path),
        check_indexes("sqlite", stats.indexes),
    ]


def _check_journal(stats: FileStats, path: str) -> Finding:
    if stats.journal in ("wal", "memory"):
        return ok("journal", stats.journal)
    return warning(
        "journal",
        stats.journal,
        "outside WAL mode, readers and the writer block each other",
        f"sqlite3 {path} 'pragma journal_mode = wal'",
    )


def _check_synchronous(stats: FileStats) -> Finding:
    name = _SYNCHRONOUS.get(stats.synchronous, str(stats.synchronous))
    if stats.synchronous >= 2 or stats.journal == "memory":
        return ok("synchronous", name)
    return warning(
        "synchronous",
        name,
        "a power failure may lose the latest commits, including started jobs",
        "set HOLDFAST_SYNCHRONOUS=FULL",
    )


def _check_busy(stats: FileStats) -> Finding:
    if stats.busy_timeout >= SHORT_WAIT_MS:
        return ok("busy_timeout", f"{stats.busy_timeout} ms")
    return warning(
        "busy_timeout",
        f"{stats.busy_timeout} ms",
        "another process's transaction would soon make ours fail",
        "open the database with a busy timeout of 5000 ms",
    )


def _check_space(stats: FileStats, path: str) -> Finding:
    size = stats.pages * stats.page_size // 1_048_576
    measured = f"{size} MiB, {stats.free_pages} of {stats.pages} pages free"
    if stats.free_pages < MANY_FREE_PAGES or stats.free_pages * 2 < stats.pages:
        return ok("space", measured)
    return warning(
        "space",
        measured,
        "most of the file is free space that only VACUUM releases",
        f"sqlite3 {path} vacuum",
    )
