"""`holdfast adopt`: allowing jobs in a copied database to run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.confirmation import ChangeOptions, change_options
from holdfast.cli.console import is_interactive, print_info
from holdfast.cli.lazy import HelpCommand
from holdfast.cli.session import CliSession, with_database
from holdfast.core.errors import NotConfirmed

if TYPE_CHECKING:
    pass

_ACTION = "database.adopt"


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
def command(session: CliSession, change: ChangeOptions) -> None:
    """Allow jobs in a copied database to run.

    A database stores the name it was created under. Workers refuse to run jobs in a copy under
    another name, so a test copy sends no mail.
    """
    identity = session.read(session.store.schema.identity())
    if identity is None or identity.recorded_name == identity.name:
        print_info("this database is not a copy; nothing to adopt")
        return
    question = f"{identity.name} is a copy of {identity.recorded_name}; its jobs will run here"
    if change.dry_run:
        print_info(f"{question}; nothing was changed")
        return
    if not change.yes and not (
        is_interactive() and click.confirm(f"{question}. Continue?", err=True)
    ):
        raise NotConfirmed(question)
    _adopt(session, change.reason)
    print_info(f"adopted {identity.name}")


def _adopt(session: CliSession, reason: str | None) -> None:
    from holdfast.commands.identity import adopt_database
    from holdfast.storage.id_generator import new_id

    gateway, caller = session.gateway, session.caller(reason)
    session.run(gateway.run(caller, _ACTION, lambda store: adopt_database(store, new_id())))
