"""`holdfast demo`: its options."""

from __future__ import annotations

import os

import click

from holdfast.cli.lazy import HelpCommand
from holdfast.core.errors import CommandUsage
from holdfast_demo.demo_database import open_demo_database

SHOWN_LEASE = "15s"
QUICK_LEASE = "3s"
PORT = 8750
ORDERS = 200


@click.command(
    "demo",
    cls=HelpCommand,
    examples=(
        "holdfast demo",
        "holdfast demo --headless --orders 50 --kill --exit",
        "holdfast demo --postgres",
        "holdfast demo --url postgresql://app@db/scratch --fresh",
    ),
)
@click.option(
    "--orders",
    type=click.IntRange(0, 100_000),
    help=f"Orders to place.  [default: until you quit; {ORDERS} with --headless or --exit]",
)
@click.option(
    "--rate", type=click.FloatRange(0.1, 1_000), default=25.0, show_default=True, help="Orders/s."
)
@click.option("--kill", is_flag=True, help="Kill the worker in the middle of a payment.")
@click.option(
    "--exit",
    "exits",
    is_flag=True,
    help="Exit when done; 0 only if nothing was lost or paid twice.",
)
@click.option("--headless", is_flag=True, help="Plain lines, no keys, short lease.")
@click.option(
    "--lease",
    metavar="DURATION",
    help=f"Lease duration.  [default: {SHOWN_LEASE}; {QUICK_LEASE} with --headless]",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    help=f"Port of the shop page and the dashboard.  [default: {PORT}; none with --headless]",
)
@click.option("--postgres", is_flag=True, help="Start a real PostgreSQL for the demo.")
@click.option("--url", metavar="URL", help="Use your own database, in separate tables.")
@click.option("--fresh", is_flag=True, help="Delete the data of earlier runs.")
def demo(
    orders: int | None,
    rate: float,
    kill: bool,
    exits: bool,
    headless: bool,
    lease: str | None,
    port: int | None,
    postgres: bool,
    url: str | None,
    fresh: bool,
) -> int:
    """Run a small shop that demonstrates the guarantees.

    Every order is a row, an event and a chain of jobs, written in one transaction. A worker
    process charges, ships and mails. Kill it: its leases expire, another worker takes over, and
    the shop's own tables show whether an order was lost or paid twice.
    """
    from holdfast.cli.orphan_guard import OrphanGuard
    from holdfast.core.duration import milliseconds

    if postgres and url is not None:
        raise CommandUsage("--postgres and --url cannot be combined", help="use only one of them")
    lease_ms = milliseconds(lease or (QUICK_LEASE if headless else SHOWN_LEASE))
    with OrphanGuard() as guard, open_demo_database(url, postgres, fresh, guard) as database:
        # The shop's module reads its URL when it is imported, here and in its worker.
        os.environ["SHOP_URL"] = database.url
        from holdfast_demo.demo import Demo
        from holdfast_demo.story import DemoOptions

        if port is None and not headless:
            port = PORT
        is_endless = orders is None and not headless and not exits
        wanted = ORDERS if orders is None else orders
        options = DemoOptions(wanted, rate, kill, exits, lease_ms, headless, port, is_endless)
        return Demo(options, database, guard).run()
