"""`holdfast chaos`: its options. The rest is imported when it runs."""

from __future__ import annotations

import json
import os
import signal
import tempfile
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.cli.console import print_info
from holdfast.cli.exit_codes import Exit
from holdfast.cli.lazy import HelpCommand
from holdfast.cli.output import Column, columns, write_table
from holdfast.cli.session import app_argument
from holdfast.core.errors import CommandUsage, nearest

if TYPE_CHECKING:
    from holdfast_chaos.campaign import CampaignResult
    from holdfast_chaos.target import CampaignTarget, StandbyMode

_COLOURS = {"✗": "red", "✓": "green", "–": None}
_LAW_COLUMNS = (
    Column("", lambda row: row["mark"], lambda row: _COLOURS[row["mark"]]),
    Column("law", lambda row: row["name"]),
    Column("must hold", lambda row: row["text"]),
    Column("broken", lambda row: "–" if row["not_judged"] else row["count"]),
)
ENDING = (signal.SIGTERM, signal.SIGHUP)
EXITS = {"green": Exit.OK, "red": Exit.CHECK_NOT_MET, "unknown": Exit.PARTLY}


@click.command(
    "chaos",
    cls=HelpCommand,
    examples=(
        "holdfast chaos --seconds 60 --seed 7",
        "holdfast chaos --postgres --seconds 300 --report campaign.html",
        "holdfast chaos --postgres --standby sync --only promote,kill,pause",
        "holdfast chaos shop:app --url postgresql://app@staging/shop --input 'order.charge={\"order\": 7}'",
    ),
)
@app_argument()
@click.option(
    "--seconds",
    type=click.FloatRange(1),
    default=60.0,
    show_default=True,
    help="How long faults are made.",
)
@click.option(
    "--seed",
    type=click.IntRange(0),
    default=1,
    show_default=True,
    help="Decides kinds and times of faults.",
)
@click.option("--postgres", is_flag=True, help="Start a PostgreSQL server for the campaign.")
@click.option(
    "--standby",
    type=click.Choice(("async", "sync")),
    help="With --postgres: promote a standby now and then.",
)
@click.option(
    "--disk",
    metavar="FOLDER",
    help="Put the database on this small file system, and fill it now and then.",
)
@click.option(
    "--url",
    metavar="URL",
    help="Use your own server, in a separate schema; or a SQLite file to create.",
)
@click.option(
    "--schema",
    metavar="NAME",
    help="The schema to create and drop on your server.  [default: holdfast_chaos]",
)
@click.option(
    "--input",
    "inputs",
    metavar="TYPE=JSON",
    multiple=True,
    help="Start this job type of APP with this input.",
)
@click.option("--only", metavar="KIND,…", default="", help="Only these kinds of faults.")
@click.option(
    "--every",
    type=click.FloatRange(0.1),
    default=3.0,
    show_default=True,
    help="Mean seconds between faults.",
)
@click.option(
    "--workers", type=click.IntRange(1, 64), default=3, show_default=True, help="Worker processes."
)
@click.option(
    "--rate",
    type=click.FloatRange(0.1),
    default=50.0,
    show_default=True,
    help="Jobs started per second.",
)
@click.option(
    "--lease",
    type=click.FloatRange(0.5),
    default=3.0,
    show_default=True,
    help="Seconds of a lease.",
)
@click.option("--report", metavar="FILE", help="Write an HTML page with the timeline.")
@click.option("--record", metavar="FILE", help="Add the result to a JSON file of campaigns.")
@click.option("--keep", metavar="FOLDER", help="Keep journals and logs in this folder.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(("table", "json")),
    default="table",
    show_default=True,
    help="Output format.",
)
def chaos(
    spec: str | None,
    seconds: float,
    seed: int,
    postgres: bool,
    standby: str | None,
    disk: str | None,
    url: str | None,
    schema: str | None,
    inputs: tuple[str, ...],
    only: str,
    every: float,
    workers: int,
    rate: float,
    lease: float,
    report: str | None,
    record: str | None,
    keep: str | None,
    output: str,
) -> int:
    """Kill, pause and cut off workers and databases under load, and check that nothing is lost.

    Runs on a temporary SQLite file, on a PostgreSQL server of its own, or on yours. Exits with 0 if all laws hold, with
    6 if one is broken, with 5 if too little happened to say, and with 7 if the database stayed away. Jobs that your
    handlers fail break no law: they are counted. The same seed makes the same faults.
    """
    from holdfast_chaos.campaign import Campaign, CampaignPlan
    from holdfast_chaos.record import add_record, read_records
    from holdfast_chaos.users_app import (
        choose_starts,
        longest_lease_s,
        name_database,
        name_unstarted,
    )
    from holdfast_chaos.view import show_campaign

    if inputs and spec is None:
        raise CommandUsage(
            "--input needs an application", help="name it first: holdfast chaos app:app"
        )
    for each in (report, record):
        _check_place(each)
    if record is not None:
        read_records(Path(record))
    name_database(url)
    starts = () if spec is None else choose_starts(spec, inputs)
    plan = CampaignPlan(
        seconds=seconds,
        seed=seed,
        workers=workers,
        per_second=rate,
        lease_s=lease if spec is None else longest_lease_s(spec, lease),
        interval_s=every,
        only=_kinds(only),
        app=spec,
        starts=starts,
        unstarted=() if spec is None else name_unstarted(spec, starts),
    )
    _end_by_signals()
    try:
        with ExitStack() as stack:
            folder = _folder(keep, stack)
            target = _open_target(folder, url, schema, postgres, standby, disk)
            stack.callback(_name_leftover, target)
            stack.enter_context(target)
            campaign = Campaign(plan, target, folder)
            if not campaign.kinds:
                refused = [f"{kind}: {reason}" for kind, reason in campaign.skipped.items()]
                raise CommandUsage(
                    "none of these faults can be made here",
                    details=refused,
                    help=_help_for(plan.only),
                )
            with show_campaign(campaign):
                result = campaign.run()
    except KeyboardInterrupt as ended:
        # The terminal may be what has gone.
        with suppress(OSError):
            print_info("ended early: nothing was judged, and what the campaign started is gone")
        return 128 + (ended.number if isinstance(ended, EndingSignal) else signal.SIGINT)
    _write(result, output)
    if report is not None:
        from holdfast_chaos.report import write_page

        write_page(result, Path(report))
        print_info(f"the timeline is in {report}")
    if record is not None and result.away_since is not None:
        print_info("not recorded: what the database holds was not judged")
    elif record is not None:
        add_record(Path(record), result)
        print_info(f"recorded in {record}")
    if result.away_since is not None and not result.verdict.broken:
        return Exit.DATABASE
    return EXITS[result.verdict.verdict]


class EndingSignal(KeyboardInterrupt):
    """A signal that ends a campaign as Ctrl-C does; psycopg cancels a statement for a KeyboardInterrupt only."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


def _end_by_signals() -> None:
    """Have what was started ended and removed, also when this command is told to end or its terminal is closed."""

    def end(number: int, _: object) -> None:
        for each in ENDING:
            signal.signal(each, signal.SIG_IGN)
        raise EndingSignal(number)

    for each in ENDING:
        # What is ignored, as under nohup, stays so.
        if signal.getsignal(each) is not signal.SIG_IGN:
            signal.signal(each, end)


def _name_leftover(target: CampaignTarget) -> None:
    """Say what could not be removed."""
    if target.leftover:
        with suppress(OSError):
            print_info(f"{target.leftover} is still in the database: drop it once that answers")


_OPTIONS = {
    "promote": "pass --standby sync",
    "full_disk": "pass --disk FOLDER",
    "write_lock": "leave out --postgres and --url",
}


def _help_for(kinds: Iterable[str]) -> str:
    """Return which options give what these faults need."""
    return " · ".join(sorted({_OPTIONS.get(kind, "pass --postgres") for kind in kinds}))


def _kinds(only: str) -> tuple[str, ...]:
    """Return the kinds that were named. Raises: CommandUsage."""
    from holdfast_chaos.faults import KINDS

    asked = tuple(each for each in only.split(",") if each)
    for each in asked:
        if each not in KINDS:
            help = (nearest(each, KINDS), f"there are {', '.join(KINDS)}")
            raise CommandUsage(
                f"there is no fault {each[:40]!r}", help=" · ".join(filter(None, help))
            )
    return asked


def _check_place(file: str | None) -> None:
    """Refuse a file that could not be written once the campaign is over. Raises: CommandUsage."""
    if file is None:
        return
    path = Path(file).absolute()
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise CommandUsage(
            f"{file} cannot be written", help="name a file in a folder that exists and is yours"
        )


def _folder(keep: str | None, stack: ExitStack) -> Path:
    """Return the folder of the journals."""
    if keep is None:
        return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-chaos-")))
    folder = Path(keep)
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise CommandUsage(f"{keep} is not empty", help="name a new folder for the journals")
    return folder


def _open_target(
    folder: Path,
    url: str | None,
    schema: str | None,
    postgres: bool,
    standby: str | None,
    disk: str | None,
) -> CampaignTarget:
    """Return the database to run on. Raises: CommandUsage, and the errors of servers."""
    from holdfast.storage.url import parse_url, without_driver
    from holdfast_chaos.disk import SmallDisk
    from holdfast_chaos.target import SCHEMA, GivenServer, OwnServer, SqliteTarget

    if url is not None and (postgres or standby):
        raise CommandUsage("--url and --postgres exclude each other", help="pass one of them")
    if disk is not None and (url is not None or standby):
        raise CommandUsage(
            "--disk is for a database without standby that this command makes",
            help="pass it alone, or with --postgres",
        )
    small = None if disk is None else SmallDisk(Path(disk))
    if postgres or standby:
        mode: StandbyMode = "none" if standby is None else "sync" if standby == "sync" else "async"
        return OwnServer(mode, small)
    if url is None:
        return SqliteTarget((small.folder if small else folder) / "campaign.db", disk=small)
    parsed = parse_url(url)
    if parsed.dialect == "sqlite":
        return SqliteTarget(Path(parsed.path).absolute())
    return GivenServer(without_driver(url), schema or SCHEMA)


def _write(result: CampaignResult, output: str) -> None:
    """Write the result."""
    from holdfast_chaos.report import figures_of, gaps_of, law_rows, notes_on, summarize

    if output == "json":
        click.echo(json.dumps(result.to_json(), ensure_ascii=False, indent=2))
        return
    verdict = result.verdict
    figures = []
    parts = {"failed jobs": verdict.failed, "faults": verdict.faults}
    for name, value in figures_of(result):
        figures.append({"figure": name, "value": value})
        for kind, n in (parts.get(name) or {}).items():
            figures.append({"figure": f"  {kind}", "value": f"{n:,}"})
    write_table(figures, columns("figure", "value"))
    click.echo()
    write_table(list(law_rows(result)), _LAW_COLUMNS)
    for each in verdict.broken:
        for named in each.named:
            print_info(f"{each.law}: {named}")
    for kind, reason in result.skipped.items():
        print_info(f"not made: {kind}, because {reason}")
    for gap in gaps_of(result):
        print_info(f"not judged: {gap}")
    for note in notes_on(result):
        print_info(note)
    print_info(summarize(result))
