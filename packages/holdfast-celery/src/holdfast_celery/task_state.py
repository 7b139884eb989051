"""The state that a task reports while it runs (`update_state`): kept with the progress of its attempt, by its token."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.core.codec import encode_any
from holdfast.core.errors import HoldfastError
from holdfast.core.records import NewProgress
from holdfast_celery.calls import tag
from holdfast_celery.errors import CeleryUnsupported
from holdfast_celery.scope import holds_lock
from holdfast_values.tagged_values import untag_value

if TYPE_CHECKING:
    from holdfast_celery.application import Celery
    from holdfast_celery.scope import TaskRequest


_BEGINNING = '{"state":'


class ReportedState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is kept as the note of the progress."""

    state: str | None
    meta: Any


def report_state(
    request: TaskRequest, task_id: str | None, state: str | None, meta: Any, sealed: bool
) -> None:
    """Record a state of the running attempt at once. Raises: CeleryUnsupported, PayloadNotEncodable."""
    if request.is_eager:
        return
    if request.job is None or request.app is None or task_id not in (None, request.id):
        raise CeleryUnsupported(
            "update_state is for the task that is running",
            help="call it in that task, without another task_id",
        )
    if sealed:
        raise CeleryUnsupported(
            f"{request.task} is sealed, and its state would not be",
            help="keep it in your own tables, encrypted",
        )
    note = encode_any({"state": state, "meta": tag(meta, "meta")})
    attempt = request.job.attempt_state
    # The heartbeat writes it too, where the file is locked by the task's own transaction.
    attempt.progress = (_fraction_of(meta), note)
    if not holds_lock(request.app):
        request.app.database.run(request.app.database.store.leases.report([_row(request)]))


def forget_state(request: TaskRequest) -> None:
    """Remove the state of an attempt that has ended; one that cannot be removed is not read either."""
    job, app = request.job, request.app
    if job is None or app is None or job.attempt_state.progress is None:
        return
    if not job.attempt_state.progress[1].startswith(_BEGINNING):
        return
    row, job.attempt_state.progress = _row(request), None
    with suppress(HoldfastError):
        app.database.run(app.database.store.leases.forget([row]))


def read_state(app: Celery, job_id: str) -> ReportedState | None:
    """Return what the attempt that runs a job has reported."""
    for each in app.database.read(app.database.store.leases.progress([job_id])):
        with suppress(msgspec.DecodeError, LookupError):
            found = msgspec.json.decode(each.note, type=ReportedState)
            return ReportedState(found.state, untag_value(found.meta))
    return None


def _row(request: TaskRequest) -> NewProgress:
    assert request.job is not None
    claimed, progress = request.job.claimed, request.job.attempt_state.progress
    assert progress is not None
    return NewProgress(claimed.id, claimed.token, claimed.fence, *progress)


def _fraction_of(meta: Any) -> float:
    """Return how far a task is that says so as Celery's examples do: `{"current": 3, "total": 10}`."""
    found = meta if isinstance(meta, dict) else {}
    current, total = found.get("current"), found.get("total")
    if not isinstance(current, int | float) or not isinstance(total, int | float) or total <= 0:
        return 0.0
    return min(1.0, max(0.0, current / total))
