"""`holdfast doctor`: checks of configuration, fleet and database, each with its measured value and its fix."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.console import print_info
from holdfast.cli.exit_codes import Exit
from holdfast.cli.lazy import HelpCommand
from holdfast.cli.output import Column, Format, columns, output_option, write_records
from holdfast.cli.session import CliSession, app_argument, database_options, open_app_or_database
from holdfast.core.duration import pluralize

if TYPE_CHECKING:
    from holdfast.scheduler.doctor import Finding
    from holdfast.settings import Settings

_COLOURS = {"ok": "green", "warning": "yellow", "problem": "red"}
_MARKS = {"ok": "✓", "warning": "!", "problem": "✗"}


_COLUMNS = (
    Column("", lambda row: _MARKS[row["verdict"]], lambda row: _COLOURS[row["verdict"]]),
    *columns("check", "measured", finding="text", fix="fix"),
)


@click.command(
    "doctor",
    cls=HelpCommand,
    examples=("holdfast doctor", "holdfast doctor shop.jobs:app --fix", "holdfast doctor -o json"),
)
@app_argument()
@click.option(
    "--fix", is_flag=True, help="Fix what is safe to fix automatically, then check again."
)
@database_options
@output_option
def doctor(spec: str | None, fix: bool, url: str | None, schema: str | None, output: Format) -> int:
    """Check configuration, fleet and database; exits 6 if a check fails.

    The leases of job types are those that live workers report. With APP, its job types, cycles and variables are
    checked too.
    """
    from msgspec.structs import asdict

    from holdfast.cli.workers import print_wait
    from holdfast.scheduler.doctor.checks import fix_problems
    from holdfast.settings import load_settings

    settings = load_settings({"HOLDFAST_URL": url, "HOLDFAST_SCHEMA": schema})
    with open_app_or_database(spec, url, schema) as session:
        findings = _run_checks(session, settings)
        if fix:
            app = session.app
            work = fix_problems(app.database, settings, findings, app.notifier, print_wait)
            for each in session.run(work):
                print_info(each)
            findings = _run_checks(session, settings)
    write_records([asdict(each) for each in findings], _COLUMNS, output, id="check")
    return _summarize(findings)


def _run_checks(session: CliSession, settings: Settings) -> list[Finding]:
    from holdfast.scheduler.doctor.checks import run_checks

    session.require_database()
    owners = [*session.app.registry, *session.app.cycle_specs.values()]
    return session.run(run_checks(session.app.database, settings, owners))


def _summarize(findings: list[Finding]) -> int:
    wrong = sum(each.verdict == "problem" for each in findings)
    odd = sum(each.verdict == "warning" for each in findings)
    if wrong or odd:
        found = f"{pluralize(wrong, 'problem')}, {pluralize(odd, 'warning')}"
        print_info(f"{found} in {len(findings)} checks")
    else:
        print_info(f"all {len(findings)} checks passed")
    return Exit.CHECK_NOT_MET if wrong else Exit.OK
