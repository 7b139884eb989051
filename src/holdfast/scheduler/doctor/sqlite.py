"""Checks of a SQLite file."""

from __future__ import annotations

import msgspec

from holdfast.scheduler.doctor.finding import Finding, ok, warning

SHORT_WAIT_MS = 1_000
MANY_FREE_PAGES = 10_000

_SYNCHRONOUS = {0: "OFF", 1: "NORMAL", 2: "FULL", 3: "EXTRA"}


class SqliteVitals(msgspec.Struct, frozen=True):
    """What the file says of itself."""

    journal: str
    synchronous: int
    busy_timeout: int
    pages: int
    free_pages: int
    page_size: int


def check_sqlite(document: str, path: str) -> list[Finding]:
    """Judge the file's own document."""
    vitals = msgspec.json.decode(document, type=SqliteVitals)
    return [_journal(vitals, path), _synchronous(vitals), _busy(vitals), _space(vitals, path)]


def _journal(vitals: SqliteVitals, path: str) -> Finding:
    if vitals.journal in ("wal", "memory"):
        return ok("journal", vitals.journal)
    return warning(
        "journal",
        vitals.journal,
        "outside of WAL mode readers and the writer wait for one another",
        f"sqlite3 {path} 'pragma journal_mode = wal'",
    )


def _synchronous(vitals: SqliteVitals) -> Finding:
    name = _SYNCHRONOUS.get(vitals.synchronous, str(vitals.synchronous))
    if vitals.synchronous >= 2 or vitals.journal == "memory":
        return ok("synchronous", name)
    return warning(
        "synchronous",
        name,
        "a power failure may lose the last commits, started jobs among them",
        "set HOLDFAST_SYNCHRONOUS=FULL",
    )


def _busy(vitals: SqliteVitals) -> Finding:
    if vitals.busy_timeout >= SHORT_WAIT_MS:
        return ok("busy_timeout", f"{vitals.busy_timeout} ms")
    return warning(
        "busy_timeout",
        f"{vitals.busy_timeout} ms",
        "a transaction of another process makes ours fail before long",
        "open the database with a busy timeout of 5000 ms",
    )


def _space(vitals: SqliteVitals, path: str) -> Finding:
    size = vitals.pages * vitals.page_size // 1_048_576
    measured = f"{size} MiB, {vitals.free_pages} of {vitals.pages} pages free"
    if vitals.free_pages < MANY_FREE_PAGES or vitals.free_pages * 2 < vitals.pages:
        return ok("space", measured)
    return warning(
        "space",
        measured,
        "most of the file is free space that only a vacuum gives back",
        f"sqlite3 {path} vacuum",
    )
