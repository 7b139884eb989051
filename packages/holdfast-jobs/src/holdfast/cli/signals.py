"""`holdfast signal`: sending a signal to the functions that wait for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.changes import reason_option
from holdfast.cli.console import print_info
from holdfast.cli.jobs import read_json
from holdfast.cli.lazy import HelpCommand
from holdfast.cli.output import Column, Format, columns, output_option, write_single, write_table
from holdfast.cli.session import CliSession, with_database

if TYPE_CHECKING:
    from holdfast.client.enqueue import SignalOptions

_COLUMNS = (
    *columns("id", "name", "key"),
    Column("sent", lambda row: "yes" if row["sent"] else "no"),
)


@click.command(
    "signal",
    cls=HelpCommand,
    examples=(
        "holdfast signal approved 7",
        """holdfast signal approved 7 --data '{"by": "ana"}' --reason 'called them'""",
        "holdfast signal paid order-7 --data @payment.json --id webhook-91",
        "holdfast signal prices.changed --broadcast --keep 1h",
    ),
)
@click.argument("name")
@click.argument("key", required=False)
@click.option("--data", metavar="JSON", help="What wait_for returns; @FILE reads a file, - stdin.")
@click.option("--id", metavar="ID", help="Send it once: with an id used before, nothing is sent.")
@click.option(
    "--keep", default="7d", show_default=True, help="How long it waits for a function to take it."
)
@click.option("--broadcast", is_flag=True, help="For all that wait, not only for the first.")
@reason_option
@output_option
@with_database
def signal(
    session: CliSession,
    name: str,
    key: str | None,
    data: str | None,
    id: str | None,
    keep: str,
    broadcast: bool,
    reason: str | None,
    output: Format,
) -> None:
    """Send a signal to the functions that wait for it.

    Nobody has to wait for it yet. See who does with `holdfast jobs list waiting:NAME`.
    """
    value = None if data is None else read_json(data, "data")
    options: SignalOptions = {"id": id, "keep": keep, "broadcast": broadcast}
    row = session.run(
        session.admin.signals.send(session.caller(reason), name, key, value, **options)
    )
    write_single(row, output, lambda: write_table([row], _COLUMNS))
    named = f"{name} {key}" if key else name
    print_info(
        f"sent {named}" if row["sent"] else f"not sent: {named} was sent with this id before"
    )
