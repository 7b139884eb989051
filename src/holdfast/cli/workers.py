"""`holdfast workers`: who works, and asking somebody to stop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.acting import Act, change, change_options
from holdfast.cli.database import read, with_database
from holdfast.cli.lazy import Group
from holdfast.cli.nearest import nearest
from holdfast.cli.output import Column, Format, Record, output_option, write_records
from holdfast.cli.talk import say
from holdfast.core.errors import WorkerNotFound
from holdfast.service.shown import plain

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.core.model import Instant, WorkerRecord
    from holdfast.storage.port import Store
    from holdfast.storage.statement import Op

_COLOURS = {"live": "green", "draining": "yellow", "silent": "red", "stopped": "bright_black"}


def _colour(row: Record) -> str | None:
    return _COLOURS[row["standing"]]


_COLUMNS = (
    Column("id", lambda row: row["id"]),
    Column("state", lambda row: row["standing"], _colour),
    Column("host", lambda row: f"{row['host']}:{row['pid']}"),
    Column("version", lambda row: row["version"]),
    Column("slots", lambda row: row["slots"]),
    Column("seen", lambda row: row["seen"]),
    Column("processed", lambda row: row["counters"].get("processed", 0)),
    Column("types", lambda row: ", ".join(row["types"])),
)


@click.group(
    "workers",
    cls=Group,
    examples=("holdfast workers list", "holdfast workers drain worker-4f1c2a9b7d3e"),
)
def command() -> None:
    """List workers, and ask one to stop."""


@command.command("list", examples=("holdfast workers list", "holdfast workers list --all -o json"))
@click.option("--all", "everyone", is_flag=True, help="Show those that have stopped too.")
@click.option("--limit", type=click.IntRange(1, 1_000), default=100, show_default=True)
@output_option
@with_database
def list_(app: Holdfast, everyone: bool, limit: int, output: Format) -> None:
    """List workers, the youngest first."""
    rows = read(app, _rows(app.database.store, limit))
    shown = [each for each in rows if everyone or each["standing"] != "stopped"]
    write_records(shown, _COLUMNS, output)
    if not shown:
        say("no worker lives")


def _rows(store: Store, limit: int) -> Op[list[dict[str, Any]]]:
    now = yield from store.schema.clock()
    records = yield from store.workers.page(limit)
    return [_row(each, now) for each in records]


def _row(worker: WorkerRecord, now: Instant) -> dict[str, Any]:
    from holdfast.ops.why import spoken

    seen = f"{spoken(now - worker.seen_at)} ago"
    return {**plain(worker), "standing": _standing(worker, now), "seen": seen}


def _standing(worker: WorkerRecord, now: Instant) -> str:
    from holdfast.ops.why import LIVE_WITHIN_MS

    if worker.stopped_at is not None:
        return "stopped"
    if now - worker.seen_at > LIVE_WITHIN_MS * 1000:
        return "silent"
    return "draining" if worker.draining else "live"


@command.command(
    "drain",
    examples=(
        "holdfast workers drain worker-4f1c2a9b7d3e --reason 'host is replaced'",
        "holdfast workers list -o id | xargs holdfast workers drain",
    ),
)
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@change_options
@with_database
def drain(app: Holdfast, ids: tuple[str, ...], act: Act) -> None:
    """Ask workers to take nothing new, finish what they run, and end.

    They learn of it at their next heartbeat.
    """
    rows = read(app, _rows(app.database.store, 1_000))
    known = {each["id"] for each in rows if each["standing"] != "stopped"}
    for id in ids:
        if id not in known:
            near = nearest(id, known)
            raise WorkerNotFound(f"there is no live worker {id[:60]}", help=near or None)
    for id in ids:
        if act.dry_run:
            say(f"would drain {id}; nothing was changed")
        else:
            _drain(app, id, act.reason)


def _drain(app: Holdfast, id: str, reason: str | None) -> None:
    change(
        app,
        app.database.store.workers.drain(id),
        action="worker.drain",
        targets=lambda done: [f"worker {id}"] if done else [],
        reason=reason,
    )
    say(f"asked {id} to drain")
