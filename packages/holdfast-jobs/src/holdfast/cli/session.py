"""The application a command works on: loaded from `module:attribute`, or a database alone, for as long as it runs."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property, wraps
from getpass import getuser
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from holdfast.core.errors import (
    AppNotLoaded,
    ChainNotFound,
    CommandUsage,
    HoldfastError,
    InvalidId,
    JobNotFound,
    SchemaTooOld,
    WrongDatabase,
    nearest,
)
from holdfast.core.ids import FEWEST_DIGITS, digits_of_part, parse_id, short_id

if TYPE_CHECKING:
    from asyncio import Runner

    from holdfast.admin.access import Caller, Gateway
    from holdfast.admin.bulk_audit import Bulk
    from holdfast.admin.service import Admin
    from holdfast.app import Holdfast
    from holdfast.storage.operation import Op
    from holdfast.storage.store import Store

T = TypeVar("T")

READ_TIMEOUT_MS = 10_000
DEFAULT_ATTRIBUTE = "app"

_SHOWN_FRAMES = 3
_MAX_ALIKE = 5
_EXAMPLE_ID = "0193a6f0-7c00-7000-8000-00007c00a1b2"
"""Ids that are shown when several fit."""

_URL = click.option(
    "--url", metavar="URL", help="The database.  [HOLDFAST_URL; default: sqlite:///holdfast.db]"
)
app_option = click.option(
    "--app", "spec", metavar="APP", help="The application, as module:attribute, and its database."
)
_SCHEMA = click.option(
    "--schema",
    metavar="NAME",
    help="The schema, on PostgreSQL.  [HOLDFAST_SCHEMA; default: holdfast]",
)


class CliSession:
    """An open application; changes go through its admin, reads may use its store.

    Its database is opened on first use.
    """

    def __init__(self, app: Holdfast, target: str | None = "") -> None:
        """Take the application and the options by which commands find it; None means its URL and schema."""
        self.app = app
        self._known_target = target
        self._runner: Runner | None = None

    @property
    def store(self) -> Store:
        """The operations of the database."""
        return self.app.database.store

    @property
    def _target(self) -> str:
        """The options by which another command finds the same database, without secrets."""
        if self._known_target is not None:
            return self._known_target
        schema = "" if self.app.schema == "holdfast" else f" --schema {self.app.schema}"
        return f" --url {self.app.database.url}{schema}"

    @property
    def gateway(self) -> Gateway:
        """Where commands are checked and audited."""
        from holdfast.admin.access import Gateway

        return Gateway(self.app, READ_TIMEOUT_MS)

    @cached_property
    def admin(self) -> Admin:
        """Reads and commands by noun, checked and audited."""
        from holdfast.admin.service import Admin

        return Admin(self.gateway)

    def caller(self, reason: str | None = None, bulk: Bulk | None = None) -> Caller:
        """Return the user of this process, as a developer: they can open the database anyway."""
        from holdfast.admin.access import Caller, Principal, Role

        return Caller(Principal(_user_name(), Role.DEVELOPER), reason=reason, bulk=bulk)

    def read(self, op: Op[T]) -> T:
        """Run an operation that only reads, with the timeout of interactive use."""
        return self.app.database.read(op, READ_TIMEOUT_MS)

    def find_id(self, noun: Literal["job", "chain"], text: str) -> str:
        """Return the id that was given whole or by a beginning or end that only one has.

        Raises: InvalidId, JobNotFound, ChainNotFound.
        """
        digits = digits_of_part(text)
        if digits is None:
            try:
                return str(parse_id(text))
            except InvalidId as error:
                raise InvalidId(
                    error.message,
                    help=f"give the whole id, or its first or last {FEWEST_DIGITS} digits or more, "
                    f"as in {short_id(_EXAMPLE_ID)}; `holdfast {noun}s list` shows ids",
                ) from None
        is_chain = noun == "chain"
        found = self.read(self.store.jobs.ids_like(digits, _MAX_ALIKE, chains=is_chain))
        if len(found) == 1:
            return found[0]
        if found:
            raise InvalidId(
                f"several {noun} ids begin or end with {text}",
                details=found,
                help="use more of the id",
            )
        from holdfast.storage.store.jobs import NEWEST_BY_END

        missing = ChainNotFound if is_chain else JobNotFound
        raise missing(
            f"no {noun} id begins with {text}, and none of the newest {NEWEST_BY_END:,} ends with it"
        )

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine; all of them share one loop."""
        import asyncio

        if self._runner is None:
            self._runner = asyncio.Runner()
        return self._runner.run(coroutine)

    def require_database(self) -> None:
        """Reject a missing SQLite file: opening it would create it, and hide a mistyped path."""
        path = self.app.database.url.removeprefix("sqlite:///")
        if self.store.dialect == "sqlite" and not Path(path).exists():
            own = self.app.migrate_command
            raise WrongDatabase(
                f"database {path} does not exist",
                help=f"create it with `{own}`"
                if own
                else f"create it with `holdfast migrate{self._target}`, or set --app, --url or HOLDFAST_URL",
            )

    def check(self) -> None:
        """Reject a database that is missing, or whose schema this code does not support."""
        self.require_database()
        check_schema(self.app, self._target)

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


def app_argument(required: bool = False) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Give a command its application as `spec`: by `--app`, as in every command, or as an argument."""

    def give(command: Callable[..., T]) -> Callable[..., T]:
        @click.argument("argument", metavar="APP" if required else "[APP]", required=False)
        @app_option
        @wraps(command)
        def with_spec(*arguments: Any, argument: str | None, spec: str | None, **options: Any) -> T:
            if argument is not None and spec is not None:
                raise CommandUsage("the application was given twice", help="omit --app")
            found = argument or spec
            if required and found is None:
                raise CommandUsage(
                    f"{click.get_current_context().command_path}: missing the application",
                    help="name it as module:attribute, for example --app shop.jobs:app",
                )
            return command(*arguments, spec=found, **options)

        return with_spec

    return give


def with_database(command: Callable[..., T]) -> Callable[..., T]:
    """Give a command `--app`, `--url` and `--schema`, and a session with the checked database as its first argument."""

    @app_option
    @database_options
    @wraps(command)
    def with_session(
        *arguments: Any, spec: str | None, url: str | None, schema: str | None, **options: Any
    ) -> T:
        with open_app_or_database(spec, url, schema) as session:
            session.check()
            return command(session, *arguments, **options)

    return with_session


def open_app_or_database(
    spec: str | None, url: str | None, schema: str | None
) -> AbstractContextManager[CliSession]:
    """Open a session with an application, or with a database alone, any job type allowed.

    Raises: CommandUsage if both are given.
    """
    from holdfast.app import Holdfast
    from holdfast.settings import load_settings

    names_database = url is not None or schema is not None
    if spec is not None and names_database:
        raise CommandUsage("an application has its own database", help="omit --url and --schema")
    if spec is not None:
        return open_app(load_app(spec), f" --app {spec}")
    own = load_settings({"HOLDFAST_URL": url, "HOLDFAST_SCHEMA": schema}).holdfast
    app = Holdfast(
        own.url, schema=own.schema, notifier=own.notifier, hints=own.hints, open_types=True
    )
    return open_app(app, None if names_database else "")


@contextmanager
def open_app(app: Holdfast, target: str | None = "") -> Iterator[CliSession]:
    """Open a session with an application; for `target` see `CliSession`."""
    session = CliSession(app, target)
    try:
        yield session
    finally:
        session.close()


def _user_name() -> str:
    try:
        return getuser()
    except (KeyError, OSError):
        # A container may run under a number that has no name.
        return "unknown"


def check_schema(app: Holdfast, target: str) -> None:
    """Reject a schema that this code does not support, with the command that would migrate this database."""
    try:
        app.database.check()
    except SchemaTooOld as error:
        command = app.migrate_command or f"holdfast migrate{target}"
        raise SchemaTooOld(
            f"{error.message} ({app.database.url})", help=f"run `{command}`"
        ) from error


def load_app(spec: str) -> Holdfast:
    """Import the application; the current directory is on the path. Raises: AppNotLoaded."""
    module_name, _, attribute = spec.partition(":")
    if not module_name or not all(part.isidentifier() for part in module_name.split(".")):
        raise AppNotLoaded(f"{spec[:60]!r} is not a module name")
    if module_name.endswith(".py") and Path(module_name).exists():
        meant = f"{module_name.removesuffix('.py')}:{attribute or DEFAULT_ATTRIBUTE}"
        raise AppNotLoaded(f"{module_name} is a file", help=f"pass its module: {meant}")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    app = _application(_import(module_name), attribute or DEFAULT_ATTRIBUTE)
    with _explain_failure(module_name):
        # An application that imports its handlers when it is first asked for them does so here.
        next(iter(app.registry), None)
    return app


def _import(name: str) -> ModuleType:
    parent = name.rpartition(".")[0]
    if parent:
        _import(parent)
    with _explain_failure(name):
        return import_module(name)


@contextmanager
def _explain_failure(name: str) -> Iterator[None]:
    """Say that a module does not exist, or what its own code raised, and where. Raises: AppNotLoaded."""
    try:
        yield
    except HoldfastError:
        raise
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name == name:
            raise _not_found(name) from None
        frames = traceback.extract_tb(error.__traceback__)[2:]  # without our own two
        theirs = [each for each in frames if "importlib" not in each.filename][-_SHOWN_FRAMES:]
        places = [f"{each.filename}:{each.lineno}: {each.line}" for each in theirs]
        reason = f"{type(error).__name__}: {error}".rstrip(": ")
        raise AppNotLoaded(
            f"importing {name} failed: {reason}", details=places, help="fix the module first"
        ) from error


def _not_found(name: str) -> AppNotLoaded:
    parent, _, part = name.rpartition(".")
    searched = (
        list(getattr(sys.modules.get(parent), "__path__", [])) if parent else [str(Path.cwd())]
    )
    near = nearest(part, [each.name for each in iter_modules(searched)])
    return AppNotLoaded(
        f"module {name} not found", details=[f"searched from {Path.cwd()}"], help=near or None
    )


def _application(module: ModuleType, attribute: str) -> Holdfast:
    from holdfast.app import Holdfast

    found: object = module
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if isinstance(found, Holdfast):
        return found
    candidates = [name for name, each in vars(module).items() if isinstance(each, Holdfast)]
    where = f"{module.__name__}:{attribute}"
    if found is None:
        near = nearest(attribute, [*candidates, *vars(module)])
        message = f"{module.__name__} has no {attribute}"
    else:
        near = ""
        kind = type(found).__name__
        article = "an" if kind[0].lower() in "aeiou" else "a"
        message = f"{where} is {article} {kind}, not a Holdfast application"
    if candidates:
        near = f"did you mean {module.__name__}:{candidates[0]}?"
    raise AppNotLoaded(message, help=near or None)
