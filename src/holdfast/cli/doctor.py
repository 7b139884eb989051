"""`holdfast doctor`: checks of configuration, fleet and database, each with its measured value and its fix."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.console import count_of, say
from holdfast.cli.exit_codes import Exit
from holdfast.cli.lazy import Command
from holdfast.cli.output import Column, Format, Record, output_option, write_records
from holdfast.cli.session import Session, chosen, database_options

if TYPE_CHECKING:
    from holdfast.scheduler.doctor.finding import Finding
    from holdfast.settings import Settings

_COLOURS = {"ok": "green", "warning": "yellow", "problem": "red"}
_MARKS = {"ok": "✓", "warning": "!", "problem": "✗"}


def _colour(row: Record) -> str | None:
    return _COLOURS[row["verdict"]]


_COLUMNS = (
    Column("", lambda row: _MARKS[row["verdict"]], _colour),
    Column("check", lambda row: row["check"]),
    Column("measured", lambda row: row["measured"]),
    Column("finding", lambda row: row["text"]),
    Column("fix", lambda row: row["fix"]),
)


@click.command(
    "doctor",
    cls=Command,
    examples=(
        "holdfast doctor",
        "holdfast doctor shop.jobs:app --fix",
        "holdfast doctor -o json",
    ),
)
@click.argument("spec", metavar="[APP]", required=False)
@click.option(
    "--fix", is_flag=True, help="Fix what is safe to fix automatically, then check again."
)
@database_options
@output_option
def command(
    spec: str | None, fix: bool, url: str | None, schema: str | None, output: Format
) -> int:
    """Check configuration, fleet and database; exits 6 if a check fails.

    With APP, the leases of its job types are checked too.
    """
    from holdfast.settings import load_settings

    settings = load_settings({"HOLDFAST_URL": url, "HOLDFAST_SCHEMA": schema})
    with chosen(spec, url, schema) as session:
        findings = _examined(session, settings)
        if fix:
            for each in session.run(_mended(session, settings, findings)):
                say(each)
            findings = _examined(session, settings)
    write_records([_row(each) for each in findings], _COLUMNS, output, id="check")
    return _told(findings)


def _examined(session: Session, settings: Settings) -> list[Finding]:
    from holdfast.scheduler.doctor.checks import examine

    session.refuse_absent()
    leases = {each.name: each.lease for each in session.app.registry if each.lease is not None}
    return session.run(examine(session.app.database, settings, leases))


async def _mended(session: Session, settings: Settings, findings: list[Finding]) -> list[str]:
    from holdfast.scheduler.doctor.checks import mend

    return await mend(session.app.database, settings, findings, session.app.notifier)


def _row(each: Finding) -> dict[str, Any]:
    return {
        "check": each.check,
        "verdict": each.verdict,
        "measured": each.measured,
        "text": each.text,
        "fix": each.fix,
    }


def _told(findings: list[Finding]) -> int:
    wrong = sum(each.verdict == "problem" for each in findings)
    odd = sum(each.verdict == "warning" for each in findings)
    if wrong or odd:
        found = f"{count_of(wrong, 'problem')}, {count_of(odd, 'warning')}"
        say(f"{found} in {len(findings)} checks")
    else:
        say(f"all {len(findings)} checks passed")
    return Exit.CHECK_NOT_MET if wrong else Exit.OK
