"""Tasks run in the caller, as `apply` and `task_always_eager` do: for tests, without database and worker."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from holdfast.core.outcome import Cancel, Continue, Snooze
from holdfast_celery.calls import GroupStep, Steps, TaskStep
from holdfast_celery.coverage import refuse_attributes
from holdfast_celery.errors import CeleryUnsupported
from holdfast_celery.exceptions import TaskRetry, without_our_frames
from holdfast_celery.result import GroupResult
from holdfast_celery.scope import TaskRequest

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

    def __repr__(self) -> str:
        return f"EagerResult({self.id})"


def apply_steps(
    app: Celery, steps: Steps, throw: bool, given: Sequence[Any] = ()
) -> EagerResult | GroupResult:
    """Run a canvas in this process, one task after another. Raises: what a task raises before the last one."""
    last: EagerResult | GroupResult | None = None
    for step in steps:
        before = given if last is None else [last.get()]
        if isinstance(step, GroupStep):
            last = GroupResult(
                [apply_steps(app, member, throw, before) for member in step.members]  # type: ignore[misc]
            )
        else:
            last = _apply_step(app, step, throw, before)
    assert last is not None
    return last


def _apply_step(app: Celery, step: TaskStep, throw: bool, given: Sequence[Any]) -> EagerResult:
    args = step.args if step.immutable else (*given, *step.args)
    id = step.options.task_id or str(app.new_id())
    given_headers = step.options.headers
    return apply_task(app.task_of(step.task), app, id, args, step.kwargs, throw, given_headers)


def apply_task(
    task: CeleryTask,
    app: Celery,
    id: str,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    throw: bool,
    headers: dict[str, Any] | None = None,
) -> EagerResult:
    """Run a task with its retries, without their delays. Raises: with `throw`, what it raises."""
    retries = 0
    while True:
        request = TaskRequest(
            id=id,
            task=task.name,
            args=tuple(args),
            kwargs=kwargs,
            retries=retries,
            root_id=id,
            called_directly=False,
            is_eager=True,
            headers=headers,
            app=app,
        )
        try:
            value = task.call_with(request)
        except Exception as error:
            if isinstance(error, TaskRetry) or task.is_retried(error, retries):
                retries += 1
                continue
            if throw:
                raise
            error.__traceback__ = without_our_frames(error.__traceback__)
            return EagerResult(id, error, "FAILURE", "".join(traceback.format_exception(error)))
        if isinstance(value, Cancel | Continue | Snooze):
            raise CeleryUnsupported(
                f"{task.name} returned a {type(value).__name__}, which needs a worker",
                help="use the test kit: holdfast.run_until_idle() runs what was started",
            )
        return EagerResult(id, value)
