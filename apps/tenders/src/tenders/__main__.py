"""`python -m tenders migrate | seed`: what is done once, before the worker runs."""

from __future__ import annotations

import argparse

from tenders.database import migrate_tables
from tenders.settings import read_settings
from tenders.worker import jobs


def main() -> None:
    """Run one command."""
    parser = argparse.ArgumentParser(prog="tenders", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("migrate", help="create or update the tables, Holdfast's included")
    parser.parse_args()
    migrate()


def migrate() -> None:
    """Bring both sets of tables up to date."""
    migrate_tables(read_settings().database_url)
    jobs.migrate()


if __name__ == "__main__":
    main()
