"""`holdfast jobs`: looking at jobs. Moving, starting and following them have modules of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.choosing import filter_argument
from holdfast.cli.database import read, with_database
from holdfast.cli.detail import Detail, write_detail
from holdfast.cli.job_moves import cancel, retry, run_now
from holdfast.cli.job_start import start
from holdfast.cli.job_tail import tail
from holdfast.cli.lazy import Group
from holdfast.cli.listing import after_option, page_length_option, write_page
from holdfast.cli.output import Column, Format, output_option, write_json
from holdfast.cli.views import JOB_COLUMNS, first_line, state_colour
from holdfast.core.errors import JobNotFound
from holdfast.core.ids import parse_id
from holdfast.service.shown import shown_attempt, shown_blocker, shown_job, shown_job_in_full
from holdfast.service.times import to_the_second

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.storage.port import Store
    from holdfast.storage.statement import Op

_ATTEMPT_COLUMNS = (
    Column("attempt", lambda row: row["attempt"]),
    Column("ended as", lambda row: row["kind"]),
    Column("ended", lambda row: to_the_second(row["ended_at"])),
    Column("worker", lambda row: row["worker"]),
    Column("error", lambda row: first_line(row["error"])),
)
_BLOCKER_COLUMNS = (
    Column("waits for chain", lambda row: row["chain_id"]),
    Column("state", lambda row: row["state"], state_colour),
    Column("open", lambda row: "yes" if row["open"] else "no"),
)


@click.group(
    "jobs",
    cls=Group,
    examples=(
        "holdfast jobs list state:failed type:mail.*",
        "holdfast jobs show 0193a6f0-7c00-7000-8000-000000000000",
        "holdfast jobs retry 'state:failed age<1h' --dry-run",
    ),
)
def command() -> None:
    """List, show, start, retry, cancel and follow jobs."""


@command.command(
    "list",
    examples=(
        "holdfast jobs list",
        "holdfast jobs list state:failed type:mail.* 'age>5m'",
        "holdfast jobs list 'error:\"timed out\"' -o json",
        "holdfast jobs list state:pending -o id --limit 500",
    ),
)
@filter_argument
@page_length_option
@after_option
@output_option
@with_database
def list_(
    app: Holdfast, filter: tuple[str, ...], limit: int, after: str | None, output: Format
) -> None:
    """List jobs, the newest first.

    A filter is made of terms that must all hold: state:failed,cancelled · type:mail.* · age>5m ·
    attempt>=3 · error:"timed out" · fingerprint:… · chain:… · key:… · id:…
    """
    page = app.database.store.jobs.page
    write_page(app, "jobs", filter, limit, after, page, shown_job, JOB_COLUMNS, output)


@command.command(
    "show",
    examples=(
        "holdfast jobs show 0193a6f0-7c00-7000-8000-000000000000",
        "holdfast jobs show 0193a6f0-7c00-7000-8000-000000000000 -o json",
    ),
)
@click.argument("id")
@click.option("--raw", is_flag=True, help="Show payloads as they are, secrets included.")
@output_option
@with_database
def show(app: Holdfast, id: str, raw: bool, output: Format) -> None:
    """Show a job: why it is not running, its attempts, its input and output."""
    found = read(app, _whole(app.database.store, str(parse_id(id)), raw))
    if output == "table":
        write_detail(_detail(found))
    elif output == "id":
        click.echo(found["id"])
    else:
        write_json(found, indent=2 if output == "json" else None)


def _whole(store: Store, id: str, raw: bool) -> Op[dict[str, Any]]:
    from holdfast.ops.why import look_around, why

    records = yield from store.jobs.get([id])
    if not records:
        raise JobNotFound(f"there is no job {id}")
    job = records[0]
    around = yield from look_around(store, job)
    attempts = yield from store.jobs.attempts(id)
    blockers = yield from store.blockers.of_jobs([id])
    return {
        **shown_job_in_full(job, raw),
        "why": why(job, around),
        "attempts": [shown_attempt(each) for each in attempts],
        "blockers": [shown_blocker(each) for each in blockers],
    }


def _detail(job: dict[str, Any]) -> Detail:
    most = job["max_attempts"]
    return Detail(
        title=f"{job['type']} · {job['state']}",
        sentence=job["why"],
        colour=state_colour(job),
        facts={
            "id": job["id"],
            "chain": f"{job['chain_id']}, job {job['chain_index'] + 1}",
            "key": job["key"],
            "priority": job["priority"],
            "attempt": f"{job['attempt']} of {most}" if most else job["attempt"],
            "crashes": job["crashes"] or None,
            "created": job["created_at"],
            "planned": job["planned_at"],
            "available": job["available_at"],
            "started": job["started_at"],
            "finished": job["finished_at"],
            "worker": job["worker"],
            "lease until": job["lease_expires_at"],
            "trace": job["trace"],
        },
        payloads={"input": job["input"], "output": job["output"]},
        text=job["error"],
        tables=((job["blockers"], _BLOCKER_COLUMNS), (job["attempts"], _ATTEMPT_COLUMNS)),
    )


for move in (retry, cancel, run_now, start, tail):
    command.add_command(move)
