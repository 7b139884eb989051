"""`holdfast grants`: what the roles of a database may do."""

from __future__ import annotations

import click

from holdfast.cli.lazy import HelpCommand
from holdfast.cli.session import app_option, database_options, open_app_or_database
from holdfast.core.errors import InvalidOption, MissingExtra


@click.command(
    "grants",
    cls=HelpCommand,
    examples=(
        "holdfast grants --url postgresql://db/shop > grants.sql",
        "holdfast grants worker=shop_worker producer=shop_web | psql shop",
    ),
)
@click.argument("roles", metavar="[ROLE=NAME]...", nargs=-1)
@app_option
@database_options
def grants(roles: tuple[str, ...], spec: str | None, url: str | None, schema: str | None) -> None:
    """Print what each database role needs for this version, as SQL.

    The roles are owner, producer, worker, operator and readonly; by default they are named
    holdfast_producer and so on. Nothing is connected to. Run it as the owner, or let
    `holdfast migrate` repeat it for roles that had it.
    """
    try:
        from holdfast_postgres.grants import GRANTS, grants_sql
    except ImportError as error:
        raise MissingExtra(
            "grants need psycopg", help='pip install "holdfast-jobs[postgres]"'
        ) from error

    names = dict(each.partition("=")[::2] for each in roles)
    if not all(names.values()):
        raise InvalidOption("a role is given as ROLE=NAME", help="as in worker=shop_worker")
    with open_app_or_database(spec, url, schema) as session:
        if session.store.dialect == "sqlite":
            raise InvalidOption("SQLite has no roles", help="pass --url postgresql://…")
        own = session.app.schema
        click.echo(
            grants_sql(own, names or {each: f"holdfast_{each}" for each in GRANTS}), nl=False
        )
