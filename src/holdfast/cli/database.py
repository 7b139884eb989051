"""The database of commands that need no application: chosen by --url, opened, checked and closed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from holdfast.core.errors import WrongDatabase

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.client.url import Address
    from holdfast.storage.statement import Op

T = TypeVar("T")

READ_TIMEOUT_MS = 10_000

_URL = click.option(
    "--url", metavar="URL", help="The database.  [HOLDFAST_URL; default: sqlite:///holdfast.db]"
)
_SCHEMA = click.option(
    "--schema",
    metavar="NAME",
    help="Its schema, on PostgreSQL.  [HOLDFAST_SCHEMA; default: holdfast]",
)


def database_options(command: Callable[..., T]) -> Callable[..., T]:
    """Give a command `--url` and `--schema`."""
    return _URL(_SCHEMA(command))


def with_database(command: Callable[..., T]) -> Callable[..., T]:
    """Give a command `--url` and `--schema`, and an application of the checked database as its first argument."""

    @database_options
    @wraps(command)
    def opened_first(*arguments: Any, url: str | None, schema: str | None, **options: Any) -> T:
        with opened(url, schema) as app:
            refuse_absent(app)
            app.database.check()
            return command(app, *arguments, **options)

    return opened_first


@contextmanager
def opened(url: str | None, schema: str | None) -> Iterator[Holdfast]:
    """Make an application of a database as it is, any type allowed, and close it afterwards."""
    from holdfast.app import Holdfast
    from holdfast.settings import load_settings

    own = load_settings({"HOLDFAST_URL": url, "HOLDFAST_SCHEMA": schema}).holdfast
    app = Holdfast(
        own.url, schema=own.schema, notifier=own.notifier, hints=own.hints, open_types=True
    )
    try:
        yield app
    finally:
        app.close()


def read(app: Holdfast, op: Op[T]) -> T:
    """Run an operation that only reads, for somebody who waits at a terminal."""
    return app.database.read(op, READ_TIMEOUT_MS)


def refuse_absent(app: Holdfast) -> None:
    """Refuse a file that is not there: opening it would make it, and hide a mistyped path."""
    address = address_of(app)
    if address.dialect == "sqlite" and not Path(address.path).exists():
        raise WrongDatabase(f"there is no database {address.path}")


def address_of(app: Holdfast) -> Address:
    """Return where an application's database is, without secrets."""
    from holdfast.client.url import parse_url

    return parse_url(app.database.url)
