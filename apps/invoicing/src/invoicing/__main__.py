"""`python -m invoicing migrate | seed`: what is done once, before the API and the worker run."""

from __future__ import annotations

import argparse
import asyncio
import sys
from datetime import UTC, datetime

from invoicing.database import Session, migrate_tables
from invoicing.seed import BUSINESSES, seed
from invoicing.settings import read_settings
from invoicing.worker import jobs


def main() -> None:
    """Run one command."""
    parser = argparse.ArgumentParser(prog="invoicing", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("migrate", help="create or update the tables, Holdfast's included")
    seeding = commands.add_parser("seed", help="fill the tables with data that looks real")
    seeding.add_argument("--invoices", type=int, default=8, help="invoices per business")
    given = parser.parse_args()
    migrate()
    if given.command == "seed":
        asyncio.run(_seed(given.invoices))


def migrate() -> None:
    """Bring both sets of tables up to date, and subscribe the handlers to their events."""
    migrate_tables(read_settings().database_url)
    jobs.migrate()


async def _seed(invoices: int) -> None:
    async with Session.begin() as session:
        new = await seed(session, datetime.now(UTC).date(), invoices)
    await jobs.aclose()
    print(f"{new} of {len(BUSINESSES)} businesses are new; their API tokens:", file=sys.stderr)
    for business in BUSINESSES:
        print(f"{business.token}\t{business.name}")


if __name__ == "__main__":
    main()
