"""`holdfast jobs retry`, `cancel` and `run-now`: moving jobs by id, or everything that a filter finds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.acting import Act, change_options
from holdfast.cli.choosing import choose_jobs, limit_option, targets_argument
from holdfast.cli.lazy import Command
from holdfast.cli.moving import Move, move
from holdfast.cli.session import Session, with_database
from holdfast.cli.views import JOB_COLUMNS
from holdfast.core import lifecycle

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from holdfast.service.jobs import JobDesk, Moved

RETRY = Move(lifecycle.RETRY, "retried", "job", JOB_COLUMNS)
_CANCEL = Move(lifecycle.CANCEL, "cancelled", "job", JOB_COLUMNS)
_RUN_NOW = Move(lifecycle.RUN_NOW, "made due", "job", JOB_COLUMNS)


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
def retry(session: Session, targets: tuple[str, ...], limit: int, act: Act) -> int:
    """Take failed jobs back into the queue, with all their attempts before them.

    A filter that says nothing of the state means failed ones.
    """
    choice = choose_jobs(session, targets, limit, "state:failed")
    return move(session, choice, act, RETRY, redriven)


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
def cancel(session: Session, targets: tuple[str, ...], limit: int, act: Act) -> int:
    """Cancel jobs that have not ended; a running handler is told to stop.

    A filter that says nothing of the state means blocked, pending and running ones.
    """
    choice = choose_jobs(session, targets, limit, "state:blocked,pending,running")
    return move(session, choice, act, _CANCEL, _cancelled)


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
def run_now(session: Session, targets: tuple[str, ...], limit: int, act: Act) -> int:
    """Make pending jobs due now, whatever they were waiting for.

    A filter that says nothing of the state means pending ones.
    """
    choice = choose_jobs(session, targets, limit, "state:pending")
    return move(session, choice, act, _RUN_NOW, _triggered)


def redriven(session: Session, ids: Sequence[str], act: Act) -> list[str]:
    """Take failed jobs back; return the ids of those that still were."""
    return _moved(session, _desk(session).retry(session.caller(act.reason), ids))


def _cancelled(session: Session, ids: Sequence[str], act: Act) -> list[str]:
    return _moved(session, _desk(session).cancel(session.caller(act.reason), ids))


def _triggered(session: Session, ids: Sequence[str], act: Act) -> list[str]:
    return _moved(session, _desk(session).run_now(session.caller(act.reason), ids))


def _desk(session: Session) -> JobDesk:
    from holdfast.service.jobs import JobDesk

    return JobDesk(session.desk)


def _moved(session: Session, command: Coroutine[Any, Any, Moved]) -> list[str]:
    return session.run(command).moved
