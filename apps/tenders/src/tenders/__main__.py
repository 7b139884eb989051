"""`python -m tenders migrate | seed | bench`: what is done once, before the worker runs, and a measurement."""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from dataclasses import asdict
from datetime import UTC, datetime

from tenders.bench import measure
from tenders.database import Session, migrate_tables
from tenders.seed import seed
from tenders.settings import read_settings
from tenders.worker import jobs


def main() -> None:
    """Run one command."""
    given = _parser().parse_args()
    if given.command == "bench":
        _bench(given.url, given.tenders, given.devices, given.output)
        return
    migrate()
    if given.command == "seed":
        asyncio.run(_seed(given.devices, given.tenders))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tenders", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("migrate", help="create or update the tables, Holdfast's included")
    seeding = commands.add_parser("seed", help="fill the tables with data that looks real")
    seeding.add_argument("--devices", type=int, default=200, help="installations of the app")
    seeding.add_argument("--tenders", type=int, default=35, help="tenders of the past")
    measuring = commands.add_parser("bench", help="measure how fast tenders are matched to devices")
    measuring.add_argument("--devices", type=int, default=10_000, help="installations of the app")
    measuring.add_argument("--tenders", type=int, default=1_000, help="tenders to match")
    measuring.add_argument("--url", help="an empty database; without one, a temporary SQLite file")
    measuring.add_argument("-o", "--output", choices=("text", "json"), default="text")
    return parser


def migrate() -> None:
    """Bring both sets of tables up to date."""
    migrate_tables(read_settings().database_url)
    jobs.migrate()


async def _seed(devices: int, tenders: int) -> None:
    async with Session.begin() as session:
        new = await seed(session, datetime.now(UTC), devices, tenders)
    await jobs.aclose()
    print(f"{new} of {devices} devices are new")


def _bench(url: str | None, tenders: int, devices: int, output: str) -> None:
    with tempfile.TemporaryDirectory(prefix="tenders-bench-") as directory:
        figures = asyncio.run(measure(url or f"sqlite:///{directory}/bench.db", tenders, devices))
    print(json.dumps(asdict(figures)) if output == "json" else figures)


if __name__ == "__main__":
    main()
