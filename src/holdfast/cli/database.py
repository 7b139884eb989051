"""The database of commands that need no application: chosen by --url, opened, checked and closed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from holdfast.core.errors import MissingExtra, WrongDatabase

if TYPE_CHECKING:
    from holdfast.client.url import Address
    from holdfast.storage.database import Database

T = TypeVar("T")

DEFAULT_URL = "sqlite:///holdfast.db"

url_option = click.option(
    "--url",
    envvar="HOLDFAST_URL",
    default=DEFAULT_URL,
    metavar="URL",
    help=f"The database.  [env: HOLDFAST_URL; default: {DEFAULT_URL}]",
)
schema_option = click.option(
    "--schema",
    envvar="HOLDFAST_SCHEMA",
    default="holdfast",
    metavar="NAME",
    help="Its schema, on PostgreSQL.  [env: HOLDFAST_SCHEMA; default: holdfast]",
)


def with_database(command: Callable[..., T]) -> Callable[..., T]:
    """Give a command `--url` and `--schema`, and a checked database as its first argument."""

    @url_option
    @schema_option
    @wraps(command)
    def opened_first(*arguments: Any, url: str, schema: str, **options: Any) -> T:
        with opened(url, schema) as database:
            return command(database, *arguments, **options)

    return opened_first


@contextmanager
def opened(url: str, schema: str) -> Iterator[Database]:
    """Open a database whose schema this code understands, and close it afterwards."""
    address = address_of(url)
    refuse_absent(address)
    with open_database(address, schema) as database:
        database.check()
        yield database


def refuse_absent(address: Address) -> None:
    """Refuse a file that is not there: opening it would make it, and hide a mistyped path."""
    if address.dialect == "sqlite" and not Path(address.path).exists():
        raise WrongDatabase(f"there is no database {address.path}")


@contextmanager
def open_database(address: Address, schema: str) -> Iterator[Database]:
    """Open a database as it is, and close it afterwards."""
    database = _made(address, schema)
    try:
        yield database
    finally:
        database.close()


def address_of(url: str) -> Address:
    """Read a URL. Raises: UnusableUrl."""
    from holdfast.client.url import parse_url

    return parse_url(url)


def _made(address: Address, schema: str) -> Database:
    if address.dialect == "sqlite":
        from holdfast.storage.sqlite.database import SqliteDatabase

        return SqliteDatabase(address.path)
    try:
        from holdfast.storage.postgres.database import PostgresDatabase
    except ImportError as error:
        raise MissingExtra(
            f"PostgreSQL needs the package {error.name}",
            help='pip install "holdfast[postgres]"',
        ) from error
    return PostgresDatabase(address.url, schema)
