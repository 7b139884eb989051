"""`holdfast migrate-from`: what of a code base written for another system is covered, and what to write instead."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from holdfast.cli.console import print_info, print_warning, progress
from holdfast.cli.lazy import HelpGroup
from holdfast.cli.output import write_json
from holdfast.core.duration import pluralize
from holdfast.core.errors import CheckNotMet, CommandUsage

if TYPE_CHECKING:
    from holdfast_celery.analysis import Analysis
    from holdfast_celery.edits import ProjectEdits


@click.group("migrate-from", cls=HelpGroup, examples=("holdfast migrate-from celery shop",))
def migrate_from() -> None:
    """Show what it takes to move a project to Holdfast."""


@migrate_from.command(
    "celery",
    examples=(
        "holdfast migrate-from celery shop",
        "holdfast migrate-from celery shop --all",
        "holdfast migrate-from celery shop --check -o json",
        "holdfast migrate-from celery shop --write --dry-run > move.patch",
        "holdfast migrate-from celery shop --write",
    ),
)
@click.argument("project", type=click.Path(path_type=Path))
@click.option("--all", "show_all", is_flag=True, help="Also list what is covered.")
@click.option("--check", is_flag=True, help="Exit with 6 if something is not covered.")
@click.option(
    "--write", is_flag=True, help="Make the edits that are mechanical; print them as a diff."
)
@click.option("--dry-run", is_flag=True, help="With --write: print the diff; write nothing.")
@click.option("--force", is_flag=True, help="With --write: also edit what is not committed to git.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(("table", "json")),
    default="table",
    show_default=True,
    help="Output format.",
)
def from_celery(
    project: Path, show_all: bool, check: bool, write: bool, dry_run: bool, force: bool, output: str
) -> None:
    """Show what holdfast_celery covers of a Celery project, and what to write instead of the rest.

    Reads the sources below PROJECT, or one file; imports nothing. With --write it moves imports, leaves out what has
    nothing to change here, and sets up Django; files that it cannot judge stay as they are.
    """
    from holdfast_celery.edits import ProjectEdits, check_committed, plan_edits

    if not project.exists():
        raise CommandUsage(f"{project} does not exist", help="name the project's directory")
    if (dry_run or force) and not write:
        raise CommandUsage("--dry-run and --force go with --write", help="add --write")
    if write and not dry_run and not force:
        check_committed(project)
    found = _analyse(project)
    edits = plan_edits(project, found) if write else ProjectEdits((), ())
    if write and not dry_run:
        edits.write(project)
        found = _analyse(project)
    if output == "json":
        _write_analysis_json(project, found, edits)
    elif write:
        _write_edits(found, edits, dry_run)
    else:
        _write_analysis(found, show_all)
    for each in (*found.warnings, *edits.warnings):
        print_warning(each)
    if check and found.to_change:
        raise CheckNotMet(
            f"{len(found.to_change)} of {len(found.findings)} uses of Celery are not covered",
            help="write what is listed above instead",
        )


def _analyse(project: Path) -> Analysis:
    from holdfast_celery.analysis import analyse

    return analyse(project, lambda files: progress(files, 100, "Reading"))


def _write_analysis_json(project: Path, found: Analysis, edits: ProjectEdits) -> None:
    write_json(
        {
            "project": str(project),
            "files": found.files,
            "tasks": found.tasks,
            "covered": len(found.covered),
            "to_change": len(found.to_change),
            "findings": [asdict(each) for each in found.findings],
            "warnings": list(found.warnings),
            "edited": [each.file for each in edits.files],
            "untouched": [asdict(each) for each in edits.untouched],
            "diff": edits.diff(),
        },
        indent=2,
    )


def _write_edits(found: Analysis, edits: ProjectEdits, dry_run: bool) -> None:
    """Write the diff as data, so that it can be kept and applied, and what is left as messages."""
    click.echo(edits.diff(), nl=False)
    left = sorted(
        {*(each for each in found.to_change if not (dry_run and each.written)), *edits.untouched}
    )
    for each in left:
        print_info(f"{each.file}:{each.line}: {each.what}\n    instead: {each.instead}")
    if edits.untouched:
        names = sorted({each.file for each in edits.untouched})
        print_info(f"{pluralize(len(names), 'file')} not edited, see above: {', '.join(names)}")
    done = "would be edited" if dry_run else "edited; review with `git diff`"
    print_info(f"{pluralize(len(edits.files), 'file')} {done}")
    print_info(f"{pluralize(len(left), 'place')} left to change by hand")


def _write_analysis(found: Analysis, show_all: bool) -> None:
    """Write each finding as two lines, since what to write instead must not be cut to a terminal's width."""
    for each in found.findings if show_all else found.to_change:
        word = "covered: " if each.covered else "instead: "
        click.echo(f"{each.file}:{each.line}: {each.what}\n    {word}{each.instead}")
    if not found.findings:
        print_info("no uses of Celery found")
        return
    tasks, files = pluralize(found.tasks, "task"), pluralize(found.files, "file")
    print_info(
        f"{tasks} in {files}: {pluralize(len(found.covered), 'use')} of Celery covered, "
        f"{len(found.to_change)} to change"
    )
    written = sum(each.written for each in found.to_change)
    if written:
        print_info(f"--write makes {written} of these changes, and moves imports")


@migrate_from.command(
    "celery-beat",
    examples=(
        "holdfast migrate-from celery-beat - --app shop.celery:app --dry-run < beat.json",
        "python manage.py dumpdata django_celery_beat | python manage.py holdfast migrate-from celery-beat -",
    ),
)
@click.argument("file", type=click.File("rb"))
@click.option("--app", "spec", metavar="APP", help="The application, as module:attribute.")
@click.option("--dry-run", is_flag=True, help="Say what would be set; write nothing.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(("table", "json")),
    default="table",
    show_default=True,
    help="Output format.",
)
def from_celery_beat(file: BinaryIO, spec: str | None, dry_run: bool, output: str) -> None:
    """Set the schedules of django-celery-beat as schedules at run time.

    FILE is what `manage.py dumpdata django_celery_beat` writes; - reads it from stdin. Run again, it changes the
    schedules of the same names.
    """
    from holdfast.cli.session import load_app, open_app
    from holdfast_celery.application import Celery
    from holdfast_celery.periodic_tasks import (
        plan_schedules,
        read_dump,
        schedules_of,
        write_schedules,
    )

    if spec is None:
        raise CommandUsage("the application is missing", help="add --app, as in shop.celery:app")
    app = load_app(spec)
    if not isinstance(app, Celery):
        raise CommandUsage(f"{spec} is not a holdfast_celery.Celery")
    with open_app(app) as session:
        session.check()
        planned = plan_schedules(app, read_dump(file.read()), datetime.now(tz=UTC))
        schedules = schedules_of(app)
        if not dry_run:
            write_schedules(app, schedules, planned)
    if output == "json":
        write_json(
            [
                {"name": each.name, "task": each.task, "outcome": each.outcome, "text": each.text}
                for each in planned
            ],
            indent=2,
        )
        return
    for each in planned:
        click.echo(f"{each.name}: {each.outcome}, {each.task}\n    {each.text}")
    if not planned:
        print_info("there are no periodic tasks in this file")
    counts = Counter(each.outcome for each in planned)
    print_info(", ".join(f"{count} {outcome}" for outcome, count in counts.items()))
