"""`holdfast verify`: what must hold of a database's rows, checked beside whatever runs on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.console import print_info
from holdfast.cli.exit_codes import Exit
from holdfast.cli.lazy import HelpCommand
from holdfast.cli.output import Column, Format, columns, limit_option, output_option, write_records
from holdfast.cli.session import CliSession, with_database
from holdfast.core.duration import pluralize
from holdfast.core.errors import MissingExtra

if TYPE_CHECKING:
    from holdfast.storage.database import Database
    from holdfast_verify.laws import LawVerdict

_COLUMNS = (
    Column("", lambda row: "✗" if row["breaches"] else "✓", lambda row: _colour(row)),
    *columns("law"),
    Column("must hold", lambda row: row["text"]),
    Column("found", lambda row: _words_of(row)),
)


def _colour(row: Mapping[str, Any]) -> str:
    return "red" if row["breaches"] else "green"


def _words_of(row: Mapping[str, Any]) -> str:
    count = len(row["breaches"])
    if not count:
        return "nothing that breaks it"
    return pluralize(count, "row", "+" if row["more"] else "")


def _check_archive(session: CliSession, url: str, limit: int) -> list[LawVerdict]:
    """Check the archive at a URL, or the application's own. Raises: MissingExtra, ArchiveNotConfigured."""
    try:
        from holdfast_verify.archive_laws import check_archive, work_on
    except ModuleNotFoundError as error:
        raise MissingExtra(
            "the archive is read by another package",
            help='install it: pip install "holdfast-jobs[archive]"',
        ) from error
    return check_archive(work_on(session.app, url), limit)


async def _check(database: Database, limit: int) -> list[LawVerdict]:
    from holdfast_verify.laws import LAWS, check_law

    # Without a limit of time: of a large database, a law may take minutes.
    link = database.link("verify", 0)
    try:
        return [await link.run(check_law(law, limit)) for law in LAWS]
    finally:
        await link.close()


@click.command(
    "verify",
    cls=HelpCommand,
    examples=(
        "holdfast verify",
        "holdfast verify --url postgresql://db/shop -o json",
        "holdfast verify --archive s3://archive",
    ),
)
@click.option(
    "--archive",
    is_flag=False,
    flag_value="",
    metavar="[URL]",
    help="Read the archive too: that of the application, or at this URL.",
)
@limit_option(20, 10_000)
@output_option
@with_database
def verify(session: CliSession, archive: str | None, limit: int, output: Format) -> int:
    """Check that no row breaks a law: lost, twice, torn, waiting forever.

    Exits with 6 and names the rows if one does. Reads whole tables and changes nothing; workers and producers go on.
    Of each law at most --limit rows are named. With --archive every archived object is read.
    """
    verdicts = session.run(_check(session.app.database, limit))
    if archive is not None:
        verdicts += _check_archive(session, archive, limit)
    rows = [
        {
            "law": each.law.name,
            "text": each.law.text,
            "breaches": [{"subject": b.subject, "text": b.text} for b in each.breaches],
            "more": each.has_more,
        }
        for each in verdicts
    ]
    write_records(rows, _COLUMNS, output, id="law")
    broken = [each for each in verdicts if each.breaches]
    for each in broken:
        for breach in each.breaches:
            print_info(f"{each.law.name}: {breach.subject}: {breach.text}")
        if each.has_more:
            print_info(f"{each.law.name}: there are more; raise --limit")
    if broken:
        print_info(f"{pluralize(len(broken), 'law')} of {len(verdicts)} broken")
        return Exit.CHECK_NOT_MET
    print_info(f"all {len(verdicts)} laws hold")
    return Exit.OK
