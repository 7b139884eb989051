"""A command's use of one application: questions at once, the service's commands on a loop of its own."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from getpass import getuser
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from holdfast.admin.roles import Role
from holdfast.core.errors import CommandUsage, WrongDatabase

if TYPE_CHECKING:
    from asyncio import Runner

    from holdfast.admin.authorize import Caller, Gateway
    from holdfast.app import Holdfast
    from holdfast.client.url import Address
    from holdfast.storage.operation import Op
    from holdfast.storage.store import Store

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


class Session:
    """An open application; commands pass its service's desk, questions may be asked of its store."""

    def __init__(self, app: Holdfast) -> None:
        """Take the application; its database is opened at the first use."""
        self.app = app
        self._runner: Runner | None = None

    @property
    def store(self) -> Store:
        """The store's meaning."""
        return self.app.database.store

    @property
    def address(self) -> Address:
        """Where the database is, without secrets."""
        from holdfast.client.url import parse_url

        return parse_url(self.app.database.url)

    @property
    def gateway(self) -> Gateway:
        """Where commands are checked and audited."""
        from holdfast.admin.authorize import Gateway

        return Gateway(self.app, READ_TIMEOUT_MS)

    def caller(self, reason: str | None = None) -> Caller:
        """Return who asks: the user of this process, who could open the database without us as well."""
        from holdfast.admin.authorize import Caller
        from holdfast.admin.roles import Principal

        return Caller(Principal(_user(), Role.DEVELOPER), reason=reason)

    def read(self, op: Op[T]) -> T:
        """Run an operation that only reads, for somebody who waits at a terminal."""
        return self.app.database.read(op, READ_TIMEOUT_MS)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run something async, all of it on one loop."""
        import asyncio

        if self._runner is None:
            self._runner = asyncio.Runner()
        return self._runner.run(coroutine)

    def refuse_absent(self) -> None:
        """Refuse a file that is not there: opening it would make it, and hide a mistyped path."""
        address = self.address
        if address.dialect == "sqlite" and not Path(address.path).exists():
            raise WrongDatabase(
                f"database {address.path} does not exist",
                help="create it with `holdfast migrate`, or set --url or HOLDFAST_URL",
            )

    def check(self) -> None:
        """Refuse a database that is not there, or whose schema this code does not understand."""
        self.refuse_absent()
        self.app.database.check()

    def close(self) -> None:
        """Close what was opened."""
        if self._runner is None:
            self.app.close()
            return
        self._runner.run(self.app.aclose())
        self._runner.close()


def database_options(command: Callable[..., T]) -> Callable[..., T]:
    """Give a command `--url` and `--schema`."""
    return _URL(_SCHEMA(command))


def with_database(command: Callable[..., T]) -> Callable[..., T]:
    """Give a command `--url` and `--schema`, and a session with the checked database as its first argument."""

    @database_options
    @wraps(command)
    def opened_first(*arguments: Any, url: str | None, schema: str | None, **options: Any) -> T:
        with opened(url, schema) as session:
            session.check()
            return command(session, *arguments, **options)

    return opened_first


@contextmanager
def opened(url: str | None, schema: str | None) -> Iterator[Session]:
    """Open a session with a database as it is, any job type allowed, and close it afterwards."""
    from holdfast.app import Holdfast
    from holdfast.settings import load_settings

    own = load_settings({"HOLDFAST_URL": url, "HOLDFAST_SCHEMA": schema}).holdfast
    app = Holdfast(
        own.url, schema=own.schema, notifier=own.notifier, hints=own.hints, open_types=True
    )
    with using(app) as session:
        yield session


def chosen(
    spec: str | None, url: str | None, schema: str | None
) -> AbstractContextManager[Session]:
    """Open a session with an application, or with a database alone. Raises: CommandUsage when both are named."""
    if spec is None:
        return opened(url, schema)
    if url is not None or schema is not None:
        raise CommandUsage("an application has its own database", help="omit --url and --schema")
    from holdfast.cli.load_app import load_app

    return using(load_app(spec))


@contextmanager
def using(app: Holdfast) -> Iterator[Session]:
    """Open a session with an application, and close it afterwards."""
    session = Session(app)
    try:
        yield session
    finally:
        session.close()


def _user() -> str:
    try:
        return getuser()
    except (KeyError, OSError):
        # A container may run under a number that has no name.
        return "unknown"
