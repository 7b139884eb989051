"""`holdfast archive`: archive what is due, list and show manifests, verify and restore them."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.changes import ChangeOptions, change_options, confirm_change, reason_option
from holdfast.cli.console import print_error, print_info
from holdfast.cli.exit_codes import Exit
from holdfast.cli.lazy import HelpGroup
from holdfast.cli.output import (
    Column,
    Detail,
    Format,
    Record,
    after_option,
    columns,
    first_line,
    limit_option,
    output_option,
    to_seconds,
    write_detail,
    write_json,
    write_page,
    write_records,
    write_single,
)
from holdfast.cli.session import CliSession, with_database
from holdfast.core.duration import pluralize
from holdfast.core.errors import CommandUsage
from holdfast_archive.errors import ArchiveCorrupted

if TYPE_CHECKING:
    from holdfast_archive import Progress
    from holdfast_archive.admin import ArchiveAdmin

_COLOURS = {"verified": "green", "failed": "red", "exporting": "yellow", "exported": "yellow"}
_STATES = ("pending", "exporting", "exported", "verified", "dropped", "failed")
_NAME = "name"
_COLUMNS = (
    *columns(manifest=_NAME),
    Column("state", lambda row: row["state"], lambda row: _COLOURS.get(row["state"])),
    *columns("rows", "bytes"),
    Column("drop", lambda row: _drop(row)),
    Column("key", lambda row: _first_key(row)),
    Column("error", lambda row: first_line(row["error"])),
)
_OBJECT_COLUMNS = columns("table", "rows", "bytes", "key", "sha256")
_TIMES = ("created", "exported", "verified", "dropped", "restored")

_LINE_EVERY_S = 5.0
_DRAW_EVERY_S = 0.1
_BAR_WIDTH = 24


def _admin(session: CliSession) -> ArchiveAdmin:
    # Here, because help does without it and is quicker so.
    from holdfast_archive.admin import ArchiveAdmin

    return session.admin.of(ArchiveAdmin)


def _drop(row: Record) -> str | None:
    if row["dropped_at"] is not None:
        return f"dropped {to_seconds(row['dropped_at'])}"
    return to_seconds(row["drop_eligible_at"])


def _first_key(row: Record) -> str | None:
    objects = row["objects"]
    if not objects:
        return None
    more = f" and {len(objects) - 1} more" if len(objects) > 1 else ""
    return f"{objects[0]['key']}{more}"


@click.group(
    "archive",
    cls=HelpGroup,
    examples=("holdfast archive list", "holdfast archive run --app shop.jobs:app"),
)
def archive() -> None:
    """Archive what is due; list, show, verify and restore manifests."""


@archive.command(
    "run",
    examples=(
        "holdfast archive run --app shop.jobs:app",
        "holdfast archive run deliveries --app shop.jobs:app --limit 3",
    ),
)
@click.argument("source", required=False, metavar="[SOURCE]")
@click.option("--limit", type=click.IntRange(min=1), help="Maximum periods to work on.")
@reason_option
@output_option
@with_database
def run(
    session: CliSession, source: str | None, limit: int | None, reason: str | None, output: Format
) -> int:
    """Drop rows past their keep time, then export and verify closed periods, of one source or all.

    Exits 0 and says so if no file store is configured; 5 if some periods failed, 1 if all did.
    """
    from holdfast_archive.registration import declared_archive

    if declared_archive(session.app) is None:
        raise CommandUsage(
            "archive run: no archive is declared",
            help="name the application that calls `add_archive(app)`, as in --app shop.jobs:app",
        )
    with ProgressReport() as progress:
        caller = session.caller(reason)
        report = session.run(_admin(session).run(caller, source, limit, progress))
    found: dict[str, Any] = {each: getattr(report, each) for each in report.__struct_fields__}
    match output:
        case "id":
            for each in report.manifests:
                click.echo(each)
        case "table":
            names = dict.fromkeys(report.manifests)
            rows = [_manifest(session, each) for each in names]
            write_records([each for each in rows if each is not None], _COLUMNS, output)
        case _:
            write_json(found, indent=2 if output == "json" else None)
    print_info(report.note or _summary(found))
    for each in report.errors:
        print_info(f"failed: {each}")
    if not report.failed:
        return Exit.OK
    return Exit.PARTLY if report.periods or report.dropped else Exit.FAILED


def _summary(report: Record) -> str:
    return (
        f"archived {pluralize(report['periods'], 'period')} ({pluralize(report['rows'], 'row')}, "
        f"{pluralize(report['bytes'], 'byte')}); dropped {report['dropped']}, failed {report['failed']}"
    )


def _manifest(session: CliSession, name: str) -> Record | None:
    """Return a manifest that a run worked on; one that turned out to be empty is gone."""
    from holdfast_archive.errors import ManifestNotFound

    try:
        return session.run(_admin(session).get(session.caller(), name)).as_json()
    except ManifestNotFound:
        return None


@archive.command(
    "list",
    examples=(
        "holdfast archive list",
        "holdfast archive list --source deliveries --state failed",
        "holdfast archive list -o json | jq '.[].objects[].key'",
    ),
)
@click.option("--source", metavar="NAME", help="Only manifests of this source.")
@click.option("--state", type=click.Choice(_STATES), help="Only manifests in this state.")
@limit_option(50)
@after_option
@output_option
@with_database
def list_(
    session: CliSession,
    source: str | None,
    state: Any,
    limit: int,
    after: str | None,
    output: Format,
) -> None:
    """List manifests, the newest period first: state, rows, bytes, object, and when rows may be dropped."""
    from holdfast.client.views import Page

    page = session.run(_admin(session).page(session.caller(), source, state, limit, after))
    shown = Page(tuple(each.as_json() for each in page.items), page.next)
    write_page("manifests", shown, _COLUMNS, output, after, id=_NAME)


@archive.command(
    "show",
    examples=(
        "holdfast archive show deliveries/2026-10",
        "holdfast archive show jobs/2026-11-15/1",
    ),
)
@click.argument("name", metavar="MANIFEST")
@output_option
@with_database
def show(session: CliSession, name: str, output: Format) -> None:
    """Show a manifest with its objects, by its id or as SOURCE/PERIOD[/PART]."""
    found = session.run(_admin(session).get(session.caller(), name)).as_json()
    write_single(found, output, lambda: _write_manifest(found), id=_NAME)


def _write_manifest(found: Record) -> None:
    facts: dict[str, object] = {each: found[each] for each in ("rows", "items", "bytes", "dropped")}
    facts |= {each: to_seconds(found[f"{each}_at"]) for each in _TIMES if found[f"{each}_at"]}
    facts["drop from"] = to_seconds(found["drop_eligible_at"])
    facts["held until"] = to_seconds(found["held_until"])
    facts["id"] = found["id"]
    detail = Detail(
        found[_NAME],
        found["state"],
        _COLOURS.get(found["state"]),
        facts,
        text=found["error"],
        tables=[(found["objects"], _OBJECT_COLUMNS)],
    )
    write_detail(detail)


@archive.command(
    "verify",
    examples=(
        "holdfast archive verify deliveries/2026-10",
        "HOLDFAST_ARCHIVE=s3://archive holdfast archive verify --all --source deliveries",
    ),
)
@click.argument("names", nargs=-1, metavar="[MANIFEST]...")
@click.option("--all", "everything", is_flag=True, help="All manifests that have objects.")
@click.option("--source", metavar="NAME", help="With --all: only manifests of this source.")
@reason_option
@output_option
@with_database
def verify(
    session: CliSession,
    names: tuple[str, ...],
    everything: bool,
    source: str | None,
    reason: str | None,
    output: Format,
) -> int:
    """Read the objects of manifests and compare them with what was stored.

    Exits 6 if an object is missing, damaged or replaced. If its rows are still in the database, the next run exports
    them again.
    """
    if bool(names) == everything or (source is not None and not everything):
        raise CommandUsage("archive verify: name manifests, or use --all, optionally with --source")
    wanted = list(names) or _all_names(session, source)
    rows, failed = [], 0
    with ProgressReport() as progress:
        for name in wanted:
            work = _admin(session).verify(session.caller(reason), name, progress)
            try:
                rows.append(session.run(work).as_json())
            except ArchiveCorrupted as error:
                if len(wanted) == 1:
                    raise
                failed += 1
                progress.clear()
                print_error(error)
                facts = session.run(_admin(session).get(session.caller(), name))
                rows.append(facts.as_json())
    write_records(rows, _COLUMNS, output, id=_NAME, empty="no manifests found")
    print_info(f"verified {pluralize(len(rows) - failed, 'manifest')}, {failed} failed")
    return Exit.CHECK_NOT_MET if failed else Exit.OK


def _all_names(session: CliSession, source: str | None) -> list[str]:
    found: list[str] = []
    after = None
    while True:
        page = session.run(_admin(session).page(session.caller(), source, None, 500, after))
        found += [each.manifest.name for each in page.items if each.manifest.objects]
        if page.next is None:
            return found
        after = page.next


@archive.command(
    "restore",
    examples=(
        "holdfast archive restore deliveries/2026-10 --reason 'claim 4711'",
        "holdfast archive restore deliveries/2026-10 --into deliveries_copy --yes",
    ),
)
@click.argument("name", metavar="MANIFEST")
@click.option("--into", metavar="TABLE", help="Another table with the same columns.")
@change_options
@with_database
def restore(session: CliSession, name: str, into: str | None, change: ChangeOptions) -> None:
    """Insert the archived rows that are missing, in one transaction.

    Objects are verified first. Identical existing rows are skipped; if one has other values, nothing is restored.
    """
    found = session.run(_admin(session).get(session.caller(), name)).as_json()
    if not confirm_change(change, "restore", "manifest", [found], _COLUMNS, many=True, id=_NAME):
        return
    with ProgressReport() as progress:
        work = _admin(session).restore(session.caller(change.reason), name, into, progress)
        restored = session.run(work)
    if change.output == "table":
        write_records([restored["manifest"]], _COLUMNS, change.output)
    else:
        write_single({**restored, _NAME: found[_NAME]}, change.output, lambda: None, id=_NAME)
    print_info(f"restored {pluralize(restored['inserted'], 'row')}; {restored['skipped']} existed")


class ProgressReport:
    """Progress on stderr: a bar on a terminal, otherwise a line for each step, and now and then while it lasts."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._step = ""
        self._shown_at = 0.0
        self._is_drawn = False

    def __enter__(self) -> ProgressReport:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def __call__(self, progress: Progress) -> None:
        """Show how far the work is. Called from the thread that works."""
        step = f"{progress.step} {progress.manifest}"
        now = time.monotonic()
        pause = _DRAW_EVERY_S if self._is_terminal else _LINE_EVERY_S
        is_over = progress.total is not None and progress.rows >= progress.total
        if step == self._step and not is_over and now - self._shown_at < pause:
            return
        self._step, self._shown_at = step, now
        if self._is_terminal:
            click.echo(f"\r\x1b[K{step} {_bar(progress)}", nl=False, err=True)
            self._is_drawn = True
        else:
            click.echo(f"{step}: {_amount(progress)}", err=True)

    def clear(self) -> None:
        """Take the bar away, so that other messages can be written."""
        if self._is_drawn:
            click.echo("\r\x1b[K", nl=False, err=True)
            self._is_drawn = False


def _amount(progress: Progress) -> str:
    if progress.total is None:
        return pluralize(progress.rows, "row")
    return f"{progress.rows} of {pluralize(progress.total, 'row')}"


def _bar(progress: Progress) -> str:
    if not progress.total:
        return _amount(progress)
    filled = min(_BAR_WIDTH, progress.rows * _BAR_WIDTH // progress.total)
    return f"[{'#' * filled:-<{_BAR_WIDTH}}] {_amount(progress)}"
