"""Tasks run in the caller, as `apply` and `task_always_eager` do: for tests, without database and worker."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from holdfast.core.outcome import Cancel, Continue, Snooze
from holdfast_celery.calls import GroupStep, Steps, TaskStep, untag_arguments
from holdfast_celery.coverage import refuse_attributes
from holdfast_celery.errors import CeleryUnsupported
from holdfast_celery.exceptions import TaskRetry, without_our_frames
from holdfast_celery.hooks import call_with
from holdfast_celery.result import GroupResult
from holdfast_celery.scope import TaskRequest
from holdfast_values.tagged_values import untag_value

if TYPE_CHECKING:
    from holdfast_celery.application import Celery
    from holdfast_celery.tasks import CeleryTask


class EagerResult:
    """The result of a task that was run in the caller."""

    def __init__(
        self, id: str, result: Any, state: str = "SUCCESS", traceback: str | None = None
    ) -> None:
        self.id = self.task_id = id
        self.result = self.info = result
        self.status = self.state = state
        self.traceback = traceback
        self.parent: EagerResult | GroupResult | None = None

    if not TYPE_CHECKING:
        __getattr__ = refuse_attributes("result attribute")

    def get(self, timeout: float | None = None, propagate: bool = True, **_: Any) -> Any:
        """Return the value, or raise the task's exception; without `propagate` that is returned."""
        if propagate and self.state == "FAILURE":
            raise self.result
        return self.result

    wait = get

    def maybe_throw(self, propagate: bool = True) -> Any:
        """Raise the exception of a task that has failed."""
        return self.get(propagate=propagate)

    def ready(self) -> bool:
        """Whether it has ended, which it has."""
        return True

    def successful(self) -> bool:
        """Whether it completed."""
        return self.state == "SUCCESS"

    def failed(self) -> bool:
        """Whether it failed."""
        return self.state == "FAILURE"

    def revoke(self, *_: Any, **__: Any) -> None:
        """Do nothing: it has ended."""

    def forget(self) -> None:
        """Do nothing: it is kept nowhere."""

    def __str__(self) -> str:
        return self.id

    def __repr__(self) -> str:
        return f"<EagerResult: {self.id}>"


def apply_steps(
    app: Celery, steps: Steps, throw: bool, given: Sequence[Any] = ()
) -> EagerResult | GroupResult:
    """Run a canvas in this process, one task after another. Raises: what a task raises before the last one."""
    last: EagerResult | GroupResult | None = None
    for step in steps:
        before, values = last, given if last is None else [last.get()]
        if isinstance(step, GroupStep):
            members = [apply_steps(app, member, throw, values) for member in step.members]
            last = GroupResult(members, app=app)  # type: ignore[arg-type]
        else:
            last = _apply_step(app, step, throw, values)
        last.parent = before
    assert last is not None
    return last


def _apply_step(app: Celery, step: TaskStep, throw: bool, given: Sequence[Any]) -> EagerResult:
    own, kwargs = untag_value(list(step.args)), untag_arguments(step.kwargs)
    request = TaskRequest(
        id=step.options.task_id or str(app.new_id()),
        task=step.task,
        args=tuple(own) if step.immutable else (*given, *own),
        kwargs=kwargs,
        called_directly=False,
        is_eager=True,
        headers=untag_value(step.options.headers),
        app=app,
    )
    result = apply_task(app.task_of(step.task), request)
    if result.state == "SUCCESS":
        for each in step.link:
            apply_steps(app, each, throw, [result.result])
        return result
    for each in step.link_error:
        _apply_errback(app, each, throw, request, result)
    if throw:
        raise result.result
    return result


def _apply_errback(
    app: Celery, steps: Steps, throw: bool, request: TaskRequest, failed: EagerResult
) -> None:
    """Run what is linked to a failure; its first task learns of that, unless it is immutable."""
    first = steps[0]
    if isinstance(first, GroupStep):
        for each in first.members:
            _apply_errback(app, (*each, *steps[1:]), throw, request, failed)
        return
    task = app.task_of(first.task)
    given = task.errback_arguments(request, failed.result, str(failed.traceback))
    apply_steps(app, steps, throw, given)


def apply_task(task: CeleryTask, first: TaskRequest) -> EagerResult:
    """Run a task with its retries, without their delays."""
    retries = 0
    while True:
        request = replace(first, retries=retries, root_id=first.id)
        try:
            value = call_with(task, request)
        except Exception as error:
            if isinstance(error, TaskRetry) or task.options.is_retried(error, retries):
                retries += 1
                continue
            error.__traceback__ = without_our_frames(error.__traceback__)
            text = "".join(traceback.format_exception(error))
            return EagerResult(str(request.id), error, "FAILURE", text)
        if isinstance(value, Cancel | Continue | Snooze):
            raise CeleryUnsupported(
                f"{task.name} returned a {type(value).__name__}, which needs a worker",
                help="use the test kit: holdfast.run_until_idle() runs what was started",
            )
        return EagerResult(str(request.id), value)
