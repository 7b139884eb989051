"""`holdfast bench`: runs the bench of a checkout, which is not part of the installed package."""

from __future__ import annotations

import sys
from pathlib import Path

import click

import holdfast
from holdfast.cli.lazy import Command
from holdfast.core.errors import ConfigError

_MARK = Path("tests", "bench", "__main__.py")


@click.command(
    "bench",
    cls=Command,
    examples=(
        "holdfast bench --quick",
        "holdfast bench --only drain,latency_p99 -o json",
        "holdfast bench --full --check",
    ),
)
@click.option("--quick", is_flag=True, help="Three small rounds, in about five minutes.")
@click.option("--full", is_flag=True, help="Beside ten million finished jobs.")
@click.option("--check", is_flag=True, help="Exit 6 when a figure is below its floor.")
@click.option("--only", metavar="NAME,…", help="Only these figures.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(("table", "json")),
    default="table",
    show_default=True,
    help="How figures are written.",
)
def command(quick: bool, full: bool, check: bool, only: str | None, output: str) -> int:
    """Measure this machine: our figures beside hand-written loops in the same run.

    Needs a checkout of the sources with its development dependencies; PostgreSQL is started by
    itself. The usual run takes up to half an hour.
    """
    import subprocess

    flags = {"--quick": quick, "--full": full, "--check": check}
    chosen = [flag for flag, wanted in flags.items() if wanted]
    if only:
        chosen += ["--only", only]
    bench = [sys.executable, "-m", "tests.bench", "--output", output, *chosen]
    return subprocess.run(bench, cwd=_checkout(), check=False).returncode


def _checkout() -> Path:
    """Return the folder that holds the bench. Raises: ConfigError when this is an installed package."""
    for folder in (Path(holdfast.__file__).parents[2], Path.cwd()):
        if (folder / _MARK).exists():
            return folder
    raise ConfigError(
        "the bench is not part of the installed package",
        help="run it in a checkout of the sources, after `make setup`",
    )
