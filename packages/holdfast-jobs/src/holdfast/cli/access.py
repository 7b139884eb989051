"""`holdfast token` and `holdfast audit`: API tokens, and the audit log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.changes import reason_option
from holdfast.cli.console import print_info
from holdfast.cli.lazy import HelpGroup
from holdfast.cli.output import (
    Column,
    Format,
    after_option,
    columns,
    limit_option,
    output_option,
    to_seconds,
    write_page,
    write_records,
    write_single,
    write_table,
)
from holdfast.cli.session import CliSession, with_database
from holdfast.core.errors import InvalidId

if TYPE_CHECKING:
    from holdfast.cli.output import Record

ROLES = ("user", "viewer", "operator", "developer")

_AUDIT_COLUMNS = (
    Column("at", lambda row: to_seconds(row["at"])),
    *columns(who="actor", role="role", did="action"),
    Column("to", lambda row: _target(row)),
    *columns(why="reason"),
)
_TOKEN_COLUMNS = (
    *columns("id", "name", "role", created="created_at", expires="expires_at"),
    Column("last used", lambda row: row["last_used_at"]),
    *columns(revoked="revoked_at"),
)
_SECRET_COLUMNS = columns("secret", "id", "name", "role")


@click.group(
    "token",
    cls=HelpGroup,
    examples=(
        "holdfast token create --role developer --name ana",
        "holdfast token list",
        "holdfast token revoke 0193a6f0-7c00-7000-8000-000000000000",
    ),
)
def token() -> None:
    """Create, list and revoke API tokens."""


@token.command(
    "create",
    examples=(
        "holdfast token create --role developer --name ana --expires 90d",
        "TOKEN=$(holdfast token create --role developer -o id)",
    ),
)
@click.option("--role", type=click.Choice(ROLES), required=True, help="What the token allows.")
@click.option("--name", help="Name of the holder, shown in the audit log.  [default: you]")
@click.option("--expires", metavar="DURATION", help="Expiry, e.g. 90d.")
@click.option(
    "--only", default="", metavar="TERM", help="What it is confined to, e.g. context.tenant:acme."
)
@reason_option
@output_option
@with_database
def create(
    session: CliSession,
    role: str,
    name: str | None,
    expires: str | None,
    only: str,
    reason: str | None,
    output: Format,
) -> None:
    """Create a token. The secret is shown only once; -o id prints only the secret."""
    from holdfast.admin.access import Principal, Role

    caller = session.caller(reason)
    holder = Principal(name or caller.name, Role.parse(role), only)
    made = session.run(session.admin.tokens.create(caller, holder, expires))
    row = {**made.token, "secret": made.secret}
    write_single(row, output, lambda: write_table([row], _SECRET_COLUMNS), id="secret")
    print_info("save the secret now: it is not stored and cannot be shown again")


@token.command("list", examples=("holdfast token list", "holdfast token list -o json"))
@output_option
@with_database
def list_tokens(session: CliSession, output: Format) -> None:
    """List tokens, newest first; secrets are never shown."""
    rows = session.run(session.admin.tokens.list(session.caller()))
    empty = "no tokens; until you create one, the API is only available on this machine"
    write_records(rows, _TOKEN_COLUMNS, output, empty=empty)


@token.command("revoke", examples=("holdfast token revoke 0193a6f0-7c00-7000-8000-000000000000",))
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@reason_option
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


def _target(row: Record) -> str:
    """Return what was changed, with the filter that found many of them."""
    after = row["after"]
    filter = after.get("filter") if isinstance(after, dict) and "ids" in after else None
    return f"{row['target']} matching {filter}" if filter else str(row["target"])


@click.group(
    "audit",
    cls=HelpGroup,
    examples=("holdfast audit list", "holdfast audit list --actor ana -o json"),
)
def audit() -> None:
    """Show the audit log."""


@audit.command(
    "list",
    examples=(
        "holdfast audit list",
        "holdfast audit list --action type.pause",
        "holdfast audit list --target 'job 0193a6f0-7c00-7000-8000-000000000000'",
    ),
)
@click.option("--actor", help="Only changes by this user or token.")
@click.option("--action", help="Only this action, e.g. job.cancel.")
@click.option("--target", help="Only changes to this target.")
@limit_option(50)
@after_option
@output_option
@with_database
def list_audit(
    session: CliSession,
    actor: str | None,
    action: str | None,
    target: str | None,
    limit: int,
    after: str | None,
    output: Format,
) -> None:
    """List manual changes, newest first."""
    page = session.run(
        session.admin.audit.page(
            session.caller(), limit, after, actor=actor, action=action, target=target
        )
    )
    write_page("changes", page, _AUDIT_COLUMNS, output, after)
