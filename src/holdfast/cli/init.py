"""`holdfast init`: a working application with a test to start from."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from holdfast.cli.console import print_info
from holdfast.cli.lazy import HelpCommand
from holdfast.core.errors import NotConfirmed

FILES = {"app.py": "app.txt", "test_app.py": "test_app.txt"}


@click.command("init", cls=HelpCommand, examples=("holdfast init", "holdfast init shop"))
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path), default=Path())
@click.option("--force", is_flag=True, help="Overwrite existing files.")
@click.option("--dry-run", is_flag=True, help="Show what would be written; write nothing.")
def command(folder: Path, force: bool, dry_run: bool) -> None:
    """Write a working application with a test."""
    existing = [name for name in FILES if (folder / name).exists()]
    if existing and not force:
        raise NotConfirmed(
            f"{folder / existing[0]} already exists",
            help="choose another directory, or overwrite it with --force",
        )
    for name, source in FILES.items():
        if dry_run:
            print_info(f"would write {folder / name}")
        else:
            _write(folder / name, source)
    if not dry_run:
        _print_next_steps(folder)


def _write(path: Path, source: str) -> None:
    from importlib.resources import files

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files("holdfast.cli").joinpath("starter", source).read_text("utf-8"))
    except OSError as error:
        raise click.FileError(str(path), error.strerror or str(error)) from None
    click.echo(str(path))


def _print_next_steps(folder: Path) -> None:
    lines = [
        "python app.py                      place an order and start its jobs, in one transaction",
        "holdfast dev app:app               run worker and dashboard; reloads on change",
        "pytest                             run the tests",
    ]
    if folder != Path():
        lines.insert(0, f"cd {shlex.quote(str(folder))}")
    print_info("\n".join(["next:", *(f"  {line}" for line in lines)]))
