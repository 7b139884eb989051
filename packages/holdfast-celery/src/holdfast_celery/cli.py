"""`holdfast migrate-from`: what of a code base written for another system is covered, and what to write instead."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.cli.console import print_info
from holdfast.cli.lazy import HelpGroup
from holdfast.cli.output import write_json
from holdfast.core.duration import pluralize
from holdfast.core.errors import CheckNotMet, CommandUsage

if TYPE_CHECKING:
    from holdfast_celery.analysis import Analysis


@click.group("migrate-from", cls=HelpGroup, examples=("holdfast migrate-from celery shop",))
def migrate_from() -> None:
    """Show what it takes to move a project to Holdfast."""


@migrate_from.command(
    "celery",
    examples=(
        "holdfast migrate-from celery shop",
        "holdfast migrate-from celery shop --all",
        "holdfast migrate-from celery shop --check -o json",
    ),
)
@click.argument("project", type=click.Path(path_type=Path))
@click.option("--all", "show_all", is_flag=True, help="Also list what is covered.")
@click.option("--check", is_flag=True, help="Exit with 6 if something is not covered.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(("table", "json")),
    default="table",
    show_default=True,
    help="Output format.",
)
def from_celery(project: Path, show_all: bool, check: bool, output: str) -> None:
    """Show what holdfast_celery covers of a Celery project, and what to write instead of the rest.

    Reads the sources below PROJECT, or one file; imports nothing.
    """
    from holdfast_celery.analysis import analyse

    if not project.exists():
        raise CommandUsage(f"{project} does not exist", help="name the project's directory")
    found = analyse(project)
    if output == "json":
        _write_analysis_json(project, found)
    else:
        _write_analysis(found, show_all)
    if check and found.to_change:
        raise CheckNotMet(
            f"{len(found.to_change)} of {len(found.findings)} uses of Celery are not covered",
            help="write what is listed above instead",
        )


def _write_analysis_json(project: Path, found: Analysis) -> None:
    write_json(
        {
            "project": str(project),
            "files": found.files,
            "tasks": found.tasks,
            "covered": len(found.covered),
            "to_change": len(found.to_change),
            "findings": [asdict(each) for each in found.findings],
        },
        indent=2,
    )


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
