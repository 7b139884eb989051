"""`holdfast jobs`: looking at jobs. Moving, starting and following them have modules of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.detail import Detail, write_detail
from holdfast.cli.job_moves import cancel, retry, run_now
from holdfast.cli.job_start import start
from holdfast.cli.job_tail import tail
from holdfast.cli.lazy import Group
from holdfast.cli.listing import list_options, write_page
from holdfast.cli.output import Column, Format, output_option, write_json
from holdfast.cli.session import Session, with_database
from holdfast.cli.views import JOB_COLUMNS, first_line, state_colour, to_the_second

if TYPE_CHECKING:
    from holdfast.service.jobs import JobDesk, JobDetail

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
@list_options
@with_database
def list_(
    session: Session, filter: tuple[str, ...], limit: int, after: str | None, output: Format
) -> None:
    """List jobs, the newest first.

    A filter is made of terms that must all hold: state:failed,cancelled · type:mail.* · age>5m ·
    attempt>=3 · error:"timed out" · fingerprint:… · chain:… · blocker:… · key:… · id:…
    """
    page = session.run(_desk(session).page(session.caller(), " ".join(filter), limit, after))
    write_page("jobs", page.items, page.next, JOB_COLUMNS, output)


def _desk(session: Session) -> JobDesk:
    from holdfast.service.jobs import JobDesk

    return JobDesk(session.desk)


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
def show(session: Session, id: str, raw: bool, output: Format) -> None:
    """Show a job: why it is not running, its attempts, its input and output."""
    found = session.run(_desk(session).get(session.caller(), id, raw))
    if output == "table":
        write_detail(_detail(found))
    elif output == "id":
        click.echo(found.job["id"])
    else:
        write_json(_whole(found), indent=2 if output == "json" else None)


def _whole(found: JobDetail) -> dict[str, Any]:
    return {
        **found.job,
        "why": found.why,
        "progress": found.progress,
        "attempts": found.attempts,
        "blockers": found.blockers,
    }


def _detail(found: JobDetail) -> Detail:
    job, progress = found.job, found.progress
    most = job["max_attempts"]
    return Detail(
        title=f"{job['type']} · {job['state']}",
        sentence=found.why,
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
            "progress": progress and f"{progress['fraction']:.0%} {progress['note']}",
            "trace": job["trace"],
        },
        payloads={"input": job["input"], "output": job["output"]},
        text=job["error"],
        tables=((found.blockers, _BLOCKER_COLUMNS), (found.attempts, _ATTEMPT_COLUMNS)),
    )


for move in (retry, cancel, run_now, start, tail):
    command.add_command(move)
