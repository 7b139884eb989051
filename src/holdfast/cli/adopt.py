"""`holdfast adopt`: allowing jobs in a copied database to run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.confirmation import Act, change_options
from holdfast.cli.console import is_interactive, say
from holdfast.cli.lazy import Command
from holdfast.cli.session import Session, with_database
from holdfast.core.errors import NotConfirmed

if TYPE_CHECKING:
    pass

_ACTION = "database.adopt"


@click.command(
    "adopt",
    cls=Command,
    examples=(
        "holdfast adopt --url postgresql://app@db/shop_staging --dry-run",
        "holdfast adopt --yes --reason 'restored after the failure of db-1'",
    ),
)
@change_options
@with_database
def command(session: Session, act: Act) -> None:
    """Allow jobs in a copied database to run.

    A database stores the name it was created under. Workers refuse to run jobs in a copy under
    another name, so a test copy sends no mail.
    """
    identity = session.read(session.store.schema.identity())
    if identity is None or identity.recorded_name == identity.name:
        say("this database is not a copy; nothing to adopt")
        return
    question = f"{identity.name} is a copy of {identity.recorded_name}; its jobs will run here"
    if act.dry_run:
        say(f"{question}; nothing was changed")
        return
    if not act.yes and not (is_interactive() and click.confirm(f"{question}. Continue?", err=True)):
        raise NotConfirmed(question)
    _adopt(session, act.reason)
    say(f"adopted {identity.name}")


def _adopt(session: Session, reason: str | None) -> None:
    from holdfast.commands.identity import adopt_database
    from holdfast.storage.id_generator import new_id

    gateway, caller = session.gateway, session.caller(reason)
    session.run(gateway.run(caller, _ACTION, lambda store: adopt_database(store, new_id())))
