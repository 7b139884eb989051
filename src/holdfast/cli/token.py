"""`holdfast token`: creating, listing and revoking API tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.console import print_info
from holdfast.cli.lazy import HelpGroup
from holdfast.cli.output import Column, Format, columns, output_option, write_records
from holdfast.cli.session import CliSession, with_database
from holdfast.core.errors import InvalidId

if TYPE_CHECKING:
    pass

ROLES = ("user", "viewer", "operator", "developer")

_COLUMNS = (
    *columns("id", "name", "role"),
    Column("created", lambda row: row["created_at"]),
    Column("expires", lambda row: row["expires_at"]),
    Column("last used", lambda row: row["last_used_at"]),
    Column("revoked", lambda row: row["revoked_at"]),
)
_SECRET_COLUMNS = (Column("secret", lambda row: row["secret"]), *_COLUMNS[:3])

_reason_option = click.option("--reason", metavar="TEXT", help="Reason, recorded in the audit log.")


@click.group(
    "token",
    cls=HelpGroup,
    examples=(
        "holdfast token create --role developer --name ana",
        "holdfast token list",
        "holdfast token revoke 0193a6f0-7c00-7000-8000-000000000000",
    ),
)
def command() -> None:
    """Create, list and revoke API tokens."""


@command.command(
    "create",
    examples=(
        "holdfast token create --role developer --name ana --expires 90d",
        "TOKEN=$(holdfast token create --role developer -o id)",
    ),
)
@click.option("--role", type=click.Choice(ROLES), required=True, help="What it may do.")
@click.option("--name", help="Name of the holder, shown in the audit log.  [default: you]")
@click.option("--expires", metavar="DURATION", help="Expiry, e.g. 90d.")
@_reason_option
@output_option
@with_database
def create(
    session: CliSession,
    role: str,
    name: str | None,
    expires: str | None,
    reason: str | None,
    output: Format,
) -> None:
    """Create a token. The secret is shown only once; -o id prints only the secret."""
    from holdfast.admin.access import Role

    caller = session.caller(reason)
    named = name or caller.name
    made = session.run(session.admin.tokens.create(caller, named, Role.parse(role), expires))
    row = {**made.token, "secret": made.secret}
    write_records([row], _SECRET_COLUMNS, output, id="secret", single=True)
    print_info("save the secret now: it is not stored and cannot be shown again")


@command.command("list", examples=("holdfast token list", "holdfast token list -o json"))
@output_option
@with_database
def list_(session: CliSession, output: Format) -> None:
    """List tokens, newest first; secrets are never shown."""
    rows = session.run(session.admin.tokens.list(session.caller()))
    write_records(rows, _COLUMNS, output)
    if not rows:
        print_info("no tokens; until you create one, the API is only available on this machine")


@command.command("revoke", examples=("holdfast token revoke 0193a6f0-7c00-7000-8000-000000000000",))
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@_reason_option
@with_database
def revoke(session: CliSession, ids: tuple[str, ...], reason: str | None) -> None:
    """Revoke tokens."""
    for id in ids:
        try:
            session.run(session.admin.tokens.revoke(session.caller(reason), id))
        except InvalidId as error:
            raise InvalidId(
                error.message, help="copy it from `holdfast token list -o id`"
            ) from None
        print_info(f"revoked {id}")
