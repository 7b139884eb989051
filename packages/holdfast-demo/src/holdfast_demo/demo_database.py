"""The shop's database: a file beside the demo, a PostgreSQL of its own, or the user's."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.core.errors import CommandUsage

if TYPE_CHECKING:
    from holdfast.cli.orphan_guard import OrphanGuard

FILE = Path("holdfast-demo.db")

DIRECTORY = "holdfast-demo-postgres"


@dataclass(frozen=True, slots=True)
class DemoDatabase:
    """The database's URL, and its name on the screen."""

    url: str
    name: str


@contextmanager
def open_demo_database(
    url: str | None, postgres: bool, fresh: bool, guard: OrphanGuard
) -> Iterator[DemoDatabase]:
    """Find or create the shop's database; `fresh` deletes the data of earlier runs.

    Raises: UnusableUrl, MissingExtra, CommandUsage.
    """
    if postgres:
        from holdfast_demo.local_postgres import run_postgres

        age = "kept" if Path(DIRECTORY, "data").exists() and not fresh else "new"
        where = "in a temporary directory" if os.geteuid() == 0 else f"./{DIRECTORY} ({age})"
        with run_postgres(_home(fresh), guard) as address:
            yield DemoDatabase(address, f"PostgreSQL {where}")
    elif url is None:
        yield _open_file(fresh)
    else:
        yield _open_url(url, fresh)


def _open_file(fresh: bool) -> DemoDatabase:
    if fresh:
        for suffix in ("", "-wal", "-shm"):
            FILE.with_name(f"{FILE.name}{suffix}").unlink(missing_ok=True)
    age = "kept" if FILE.exists() else "new"
    return DemoDatabase(f"sqlite:///{FILE}", f"SQLite ./{FILE} ({age})")


def _open_url(url: str, fresh: bool) -> DemoDatabase:
    from holdfast.storage.url import missing_driver, parse_url
    from holdfast_demo import tables

    address = parse_url(url)
    if address.dialect == "sqlite":
        if fresh:
            raise CommandUsage(
                "--fresh does not delete your files", help=f"delete {address.path} yourself"
            )
        return DemoDatabase(address.url, f"SQLite {address.path}")
    try:
        from holdfast.storage.postgres.connection import url_without_password
    except ImportError as error:
        raise missing_driver(error) from error
    if fresh:
        tables.close_shop(address.url)
    return DemoDatabase(address.url, url_without_password(address.url))


@contextmanager
def _home(fresh: bool) -> Iterator[Path]:
    """Yield a directory that is kept; for root, one that is removed afterwards, as PostgreSQL runs as nobody."""
    from holdfast_demo.local_postgres import temporary_home

    if os.geteuid() == 0:
        with temporary_home(f"{DIRECTORY}-") as directory:
            yield directory
        return
    home = Path(DIRECTORY)
    if fresh:
        shutil.rmtree(home, ignore_errors=True)
    home.mkdir(mode=0o700, exist_ok=True)
    yield home
