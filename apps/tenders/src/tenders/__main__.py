"""`python -m tenders migrate | seed`: what is done once, before the worker runs."""

from __future__ import annotations

import argparse
import asyncio
from datetime import UTC, datetime

from tenders.database import Session, migrate_tables
from tenders.seed import seed
from tenders.settings import read_settings
from tenders.worker import jobs


def main() -> None:
    """Run one command."""
    parser = argparse.ArgumentParser(prog="tenders", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("migrate", help="create or update the tables, Holdfast's included")
    seeding = commands.add_parser("seed", help="fill the tables with data that looks real")
    seeding.add_argument("--devices", type=int, default=200, help="installations of the app")
    seeding.add_argument("--tenders", type=int, default=35, help="tenders of the past")
    given = parser.parse_args()
    migrate()
    if given.command == "seed":
        asyncio.run(_seed(given.devices, given.tenders))


def migrate() -> None:
    """Bring both sets of tables up to date."""
    migrate_tables(read_settings().database_url)
    jobs.migrate()


async def _seed(devices: int, tenders: int) -> None:
    async with Session.begin() as session:
        new = await seed(session, datetime.now(UTC), devices, tenders)
    await jobs.aclose()
    print(f"{new} of {devices} devices are new")


if __name__ == "__main__":
    main()
