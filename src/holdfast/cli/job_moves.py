"""`holdfast jobs retry`, `cancel` and `run-now`: moving jobs by id, or everything that a filter finds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.acting import Act, change, change_options
from holdfast.cli.choosing import choose_jobs, limit_option, targets_argument
from holdfast.cli.database import with_database
from holdfast.cli.lazy import Command
from holdfast.cli.moving import Move, move
from holdfast.cli.views import JOB_COLUMNS
from holdfast.service.shown import shown_job

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.app import Holdfast

RETRY = Move("retry", "retried", "job", ("failed",), shown_job, JOB_COLUMNS)
_CANCEL = Move(
    "cancel", "cancelled", "job", ("blocked", "pending", "running"), shown_job, JOB_COLUMNS
)
_RUN_NOW = Move("run", "made due", "job", ("pending",), shown_job, JOB_COLUMNS)


@click.command(
    "retry",
    cls=Command,
    examples=(
        "holdfast jobs retry 0193a6f0-7c00-7000-8000-000000000000",
        "holdfast jobs retry type:mail.* 'error:\"timed out\"' --dry-run",
        "holdfast jobs retry type:mail.* 'age<1h' --yes --reason 'provider is back'",
    ),
)
@targets_argument
@limit_option
@change_options
@with_database
def retry(app: Holdfast, targets: tuple[str, ...], limit: int, act: Act) -> int:
    """Take failed jobs back into the queue, with all their attempts before them.

    A filter that says nothing of the state means failed ones.
    """
    choice = choose_jobs(app, targets, limit, "state:failed")
    return move(app, choice, act, RETRY, redriven)


@click.command(
    "cancel",
    cls=Command,
    examples=(
        "holdfast jobs cancel 0193a6f0-7c00-7000-8000-000000000000 --reason 'sent by hand'",
        "holdfast jobs cancel state:pending type:report.* --dry-run",
    ),
)
@targets_argument
@limit_option
@change_options
@with_database
def cancel(app: Holdfast, targets: tuple[str, ...], limit: int, act: Act) -> int:
    """Cancel jobs that have not ended; a running handler is told to stop.

    A filter that says nothing of the state means blocked, pending and running ones.
    """
    choice = choose_jobs(app, targets, limit, "state:blocked,pending,running")
    return move(app, choice, act, _CANCEL, _cancelled)


@click.command(
    "run-now",
    cls=Command,
    examples=(
        "holdfast jobs run-now 0193a6f0-7c00-7000-8000-000000000000",
        "holdfast jobs run-now type:mail.* 'attempt>=1' --yes",
    ),
)
@targets_argument
@limit_option
@change_options
@with_database
def run_now(app: Holdfast, targets: tuple[str, ...], limit: int, act: Act) -> int:
    """Make pending jobs due now, whatever they were waiting for.

    A filter that says nothing of the state means pending ones.
    """
    choice = choose_jobs(app, targets, limit, "state:pending")
    return move(app, choice, act, _RUN_NOW, _triggered)


def redriven(app: Holdfast, ids: Sequence[str], act: Act, spacing_us: int = 0) -> list[str]:
    """Take failed jobs back; return the ids of those that still were."""
    from holdfast.ops.move import redrive_jobs
    from holdfast.service.hints import of_moved

    moved = change(
        app,
        redrive_jobs(app.database.store, ids, spacing_us),
        action="job.retry",
        targets=lambda refs: [f"job {each.id}" for each in refs],
        reason=act.reason,
        hints=of_moved,
    )
    return [each.id for each in moved]


def _cancelled(app: Holdfast, ids: Sequence[str], act: Act) -> list[str]:
    from holdfast.ops.end import cancel_jobs
    from holdfast.service.hints import of_ended

    report = change(
        app,
        cancel_jobs(app.database.store, ids, act.reason or ""),
        action="job.cancel",
        targets=lambda report: [f"job {each.id}" for each in report.ended],
        reason=act.reason,
        hints=of_ended,
    )
    return [each.id for each in report.ended]


def _triggered(app: Holdfast, ids: Sequence[str], act: Act) -> list[str]:
    from holdfast.service.hints import of_moved

    moved = change(
        app,
        app.database.store.jobs.trigger(ids),
        action="job.run_now",
        targets=lambda refs: [f"job {each.id}" for each in refs],
        reason=act.reason,
        hints=of_moved,
    )
    return [each.id for each in moved]
