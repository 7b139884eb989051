"""Where the shop is: a file beside the demo, a PostgreSQL started for it, or a database of the user's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from holdfast.cli.orphan_guard import OrphanGuard
from holdfast.client.url import parse_url
from holdfast.core.errors import CommandUsage, MissingExtra
from holdfast.demo import tables

FILE = Path("holdfast-demo.db")
_BESIDE = ("", "-wal", "-shm")


@dataclass(frozen=True, slots=True)
class DemoDatabase:
    """The shop's address, and how people are told of it."""

    url: str
    name: str


@contextmanager
def open_demo_database(
    url: str | None, postgres: bool, fresh: bool, guardian: OrphanGuard
) -> Iterator[DemoDatabase]:
    """Find or make the shop's database; `fresh` removes what earlier runs left in it.

    Raises: UnusableUrl, MissingExtra, CommandUsage.
    """
    if postgres:
        from holdfast.demo.postgres import run_postgres

        with run_postgres(fresh, guardian) as (address, where):
            yield DemoDatabase(address, f"PostgreSQL {where}")
    elif url is None:
        yield _file(fresh)
    else:
        yield _given(url, fresh)


def _file(fresh: bool) -> DemoDatabase:
    if fresh:
        for end in _BESIDE:
            FILE.with_name(f"{FILE.name}{end}").unlink(missing_ok=True)
    age = "kept" if FILE.exists() else "new"
    return DemoDatabase(f"sqlite:///{FILE}", f"SQLite ./{FILE} ({age})")


def _given(url: str, fresh: bool) -> DemoDatabase:
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
        raise MissingExtra(
            f"PostgreSQL needs the package {error.name}",
            help='pip install "holdfast-jobs[postgres]"',
        ) from error
    if fresh:
        tables.close_shop(address.url)
    return DemoDatabase(address.url, url_without_password(address.url))
