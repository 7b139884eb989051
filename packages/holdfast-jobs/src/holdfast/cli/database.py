"""`holdfast migrate` and `adopt`: the schema, and allowing jobs in a copied database."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Literal

import click

from holdfast.cli.changes import ChangeOptions, change_options
from holdfast.cli.console import is_interactive, print_info
from holdfast.cli.lazy import HelpCommand
from holdfast.cli.output import Format, Record, columns, output_option, write_records
from holdfast.cli.session import (
    CliSession,
    app_option,
    database_options,
    open_app_or_database,
    with_database,
)
from holdfast.core.duration import pluralize
from holdfast.core.errors import (
    InvalidOption,
    NotConfirmed,
    SchemaTooNew,
    SchemaTooOld,
    WrongDatabase,
)

if TYPE_CHECKING:
    from holdfast.core.records import AppliedMigration


Action = Literal["up", "list", "check", "sql"]
ACTIONS: tuple[Action, ...] = ("up", "list", "check", "sql")

_COLUMNS = columns("version", "name", "state")


@click.command(
    "migrate",
    cls=HelpCommand,
    examples=(
        "holdfast migrate",
        "HOLDFAST_URL=postgresql://app@db/shop holdfast migrate",
        "holdfast migrate --app shop.jobs:app",
        "holdfast migrate --wait 1h",
        "holdfast migrate check || echo 'migrate before you deploy'",
        "holdfast migrate sql --url postgresql://db/shop > schema.sql",
    ),
)
@click.argument("action", type=click.Choice(ACTIONS), default="up")
@click.option(
    "--wait",
    metavar="DURATION",
    help="How long to wait for other transactions in all; 10m by default.",
)
@app_option
@database_options
@output_option
def migrate(
    action: Action,
    wait: str | None,
    spec: str | None,
    url: str | None,
    schema: str | None,
    output: Format,
) -> None:
    """Bring the schema up to date.

    up applies pending migrations, under a lock, while workers and producers go on. It says for
    which transaction it waits, and continues an interrupted run. list shows every migration and whether it was
    applied. check exits 7 unless this version supports the schema. sql prints the whole schema
    without connecting, for applying it with other tools.
    """
    with open_app_or_database(spec, url, schema) as session:
        match action:
            case "up":
                _up(session, wait, output)
            case "list":
                _list(session, output)
            case "check":
                _check(session, output)
            case "sql":
                if output != "table":
                    raise InvalidOption("the schema is printed as SQL", help="leave out -o")
                click.echo(_sql(session), nl=False)


def _up(session: CliSession, wait: str | None, output: Format) -> None:
    from holdfast.storage.migrations import WAIT

    applied = session.app.migrate(wait=wait or WAIT, tell=print_info)
    write_records([_row(each, "applied now") for each in applied], _COLUMNS, output, id="version")
    done = f"applied {pluralize(len(applied), 'migration')} to" if applied else "up to date:"
    print_info(f"{done} {_name(session)}")


def _name(session: CliSession) -> str:
    """Return the database as people know it, without its password, and the schema in it."""
    schema = f", schema {session.app.schema}" if session.store.dialect == "postgresql" else ""
    return f"{session.app.database.url}{schema}"


def _check(session: CliSession, output: Format) -> None:
    session.require_database()
    newest = session.app.database.check()[-1]
    if output != "table":
        write_records([_row(newest, "applied")], _COLUMNS, output, id="version")
    print_info(
        f"{_name(session)}: the schema is at version {newest.version}, which this version supports"
    )


def _list(session: CliSession, output: Format) -> None:
    from holdfast.storage.migrations import load_migrations

    applied = _read_applied(session)
    dialect = "postgres" if session.store.dialect == "postgresql" else "sqlite"
    done = {each.version for each in applied}
    known = {step.version: step.record for step in load_migrations(f"holdfast.storage.{dialect}")}
    rows = [_row(each, "applied" if each.version in done else "pending") for each in known.values()]
    rows += [_row(each, "newer than this code") for each in applied if each.version not in known]
    write_records(rows, _COLUMNS, output, id="version")


def _read_applied(session: CliSession) -> list[AppliedMigration]:
    try:
        with suppress(SchemaTooOld, SchemaTooNew):
            # What was applied is listed even if this code cannot use it.
            session.check()
        return session.read(session.store.schema.applied())
    except WrongDatabase:
        return []


def _row(each: AppliedMigration, state: str) -> Record:
    from msgspec.structs import asdict

    return {**asdict(each), "state": state}


def _sql(session: CliSession) -> str:
    if session.store.dialect == "sqlite":
        from holdfast.storage.sqlite.migrations import migration_sql as sqlite_sql

        return sqlite_sql()
    from holdfast.storage.postgres.migrations import migration_sql as postgres_sql

    return postgres_sql(session.app.schema)


@click.command(
    "adopt",
    cls=HelpCommand,
    examples=(
        "holdfast adopt --url postgresql://app@db/shop_staging --dry-run",
        "holdfast adopt --yes --reason 'restored after the failure of db-1'",
    ),
)
@change_options
@with_database
def adopt(session: CliSession, change: ChangeOptions) -> None:
    """Allow jobs in a copied database to run.

    Workers refuse to run jobs in a copy, so a test copy sends no mail. A copy has another name or
    path, another server, an address that was never used, or another HOLDFAST_ENVIRONMENT. So has a
    database that was moved or upgraded with pg_upgrade: adopt it once.
    """
    from holdfast.commands.identity import adopt_database
    from holdfast.storage.id_generator import new_id

    identity = session.read(session.store.schema.identity())
    if identity is None or identity.copied is None:
        _write_adopted(change, [])
        print_info("this database is not a copy; nothing to adopt")
        return
    adoption = {"name": identity.name, "copy_of": identity.recorded_name, "reason": identity.copied}
    question = f"{identity.copied}; its jobs will run here"
    if change.dry_run:
        _write_adopted(change, [adoption])
        print_info(f"{question}; nothing was changed")
        return
    if not change.yes and not (
        is_interactive() and click.confirm(f"{question}. Continue?", err=True)
    ):
        raise NotConfirmed(question)
    caller = session.caller(change.reason)
    adopted = session.gateway.run(
        caller, "database.adopt", lambda store: adopt_database(store, new_id())
    )
    session.run(adopted)
    _write_adopted(change, [adoption])
    print_info(f"adopted {identity.name}")


def _write_adopted(change: ChangeOptions, records: list[Record]) -> None:
    if change.output != "table":
        write_records(records, (), change.output, id="name")
