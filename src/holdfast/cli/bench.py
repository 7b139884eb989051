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
        "holdfast bench --only worker,start -o json",
        "holdfast bench --server postgresql://me@db.example/postgres",
        "holdfast bench --peers procrastinate,pgqueuer",
        "holdfast bench --full --check",
    ),
)
@click.option("--tiny", is_flag=True, help="One small round: does it work here?")
@click.option("--quick", is_flag=True, help="Three small rounds, in about ten minutes.")
@click.option("--full", is_flag=True, help="Beside ten million finished jobs.")
@click.option("--check", is_flag=True, help="Exit 6 when a figure is below its floor.")
@click.option(
    "--server",
    metavar="stock|wheel|both|URL",
    help="Which PostgreSQL: the system's as shipped, the wheel's, or yours.  [default: both]",
)
@click.option("--only", metavar="NAME,…", help="Only these figures or groups of figures.")
@click.option(
    "--peers",
    metavar="[NAME,…]",
    is_flag=False,
    flag_value="all",
    help="Measure other queues beside ours instead, each installed into an environment of its own.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(("table", "json", "markdown")),
    default="table",
    show_default=True,
    help="How figures are written.",
)
def command(
    tiny: bool,
    quick: bool,
    full: bool,
    check: bool,
    server: str | None,
    only: str | None,
    peers: str | None,
    output: str,
) -> int:
    """Measure this machine: `holdfast worker` beside hand-written loops in the same run.

    Needs a checkout of the sources with its development dependencies. Servers are started for the
    run and removed; on a server of yours, databases are created and dropped, so its role needs
    CREATEDB. The usual run takes about an hour.
    """
    import subprocess

    flags = {"--tiny": tiny, "--quick": quick, "--full": full, "--check": check}
    values = {"--server": server, "--only": only, "--peers": peers, "--output": output}
    chosen = [flag for flag, wanted in flags.items() if wanted]
    chosen += [f"{name}={value}" for name, value in values.items() if value]
    bench = [sys.executable, "-m", "tests.bench", *chosen]
    return subprocess.run(bench, cwd=_checkout(), check=False).returncode


def _checkout() -> Path:
    """Return the folder that holds the bench. Raises: ConfigError when this is an installed package."""
    for folder in (Path(holdfast.__file__).parents[2], Path.cwd()):
        if (folder / _MARK).exists():
            return folder
    raise ConfigError(
        "the bench is not part of the installed package",
        help="run `make setup` in a checkout of the sources, then `.venv/bin/holdfast bench` there",
    )
