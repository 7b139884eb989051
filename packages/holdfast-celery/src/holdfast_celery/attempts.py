"""How a worker runs the jobs of a task: an attempt, its retries, its end, and what follows it in a canvas."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.core.errors import InputUnreadable
from holdfast.core.instants import to_datetime
from holdfast.core.outcome import Cancel, Continue, Snooze
from holdfast.core.registry import TypeOptions
from holdfast.worker.job import Job
from holdfast_celery.calls import (
    COLLECT,
    FailedCall,
    GroupStep,
    Steps,
    TaskCall,
    continue_with,
    input_of,
    tag,
    untag_arguments,
)
from holdfast_celery.canvas import after_group, start_errback, start_members, start_steps
from holdfast_celery.exceptions import (
    RecordedError,
    TaskRetry,
    TimeLimitExceeded,
    read_error,
    read_traceback,
    record_error,
)
from holdfast_celery.hooks import NOT_FAILURES, call_with, send_internal_error
from holdfast_celery.messages import received_request, send_before_publish
from holdfast_celery.revocation import is_revoked
from holdfast_celery.scope import TaskRequest
from holdfast_celery.signals import first_task, task_received
from holdfast_celery.task_options import CUT_OFF_ATTEMPTS, NO_TIME_LIMIT, rate_of
from holdfast_celery.task_state import forget_state
from holdfast_values.tagged_values import untag_value

if TYPE_CHECKING:
    from holdfast_celery.application import Celery
    from holdfast_celery.tasks import CeleryTask


class TaskRunner:
    """Runs the jobs of a task in an application."""

    def __init__(self, task: CeleryTask, app: Celery) -> None:
        self._task = task
        self._app = app

    def handler(self) -> Callable[[Job[TaskCall]], Any]:
        """Return the handler of its job type, with the application's sync middlewares around it."""

        def handle(job: Job[TaskCall]) -> Any:
            call: Callable[[], Any] = partial(self.run, job)
            for middleware in reversed(self._app.sync_middlewares):
                call = partial(middleware, job, call)
            return call()

        handle.__qualname__ = handle.__name__ = self._task.__name__
        handle.__module__ = str(self._task.__module__)
        return handle

    def options(self) -> TypeOptions:
        """Return the options of its job type."""
        own, app = self._task.options, self._app
        found: TypeOptions = {
            "retry": own.policy(),
            "on_failed": self.end_failed,
            "timeout": own.time_limit or app.conf.task_time_limit or NO_TIME_LIMIT,
        }
        if own.rate_limit is not None:
            # Types that share a name share the limit: a task has one, whatever its queues.
            found["rates"] = rate_of(own.rate_limit, self._task.name if app.queues else None)
        if own.sealed:
            found["sealed"] = True
        return found

    def run(self, job: Job[TaskCall]) -> Any:
        """Run one attempt, and record what it raised. Raises: RecordedError, and what the worker understands."""
        first_task.begin(self._app)
        try:
            return self._run_attempt(job)
        except (RecordedError, *NOT_FAILURES):
            raise
        except Exception as error:
            # Not of the task itself: a result that cannot be stored, or a database that was away.
            call = job.input
            id, args = call.task_id or str(job.id), tuple(call.args)
            request = TaskRequest(
                id=id, task=self._task.name, args=args, kwargs=call.kwargs, job=job
            )
            if not isinstance(error, TimeLimitExceeded):
                send_internal_error(self._task, error, request)
            allowed = self._task.options.timeout_retries
            is_last = allowed is not None and job.attempt > allowed + CUT_OFF_ATTEMPTS
            if is_last or getattr(error, "retryable", True) is False:
                raise record_error(error, sealed=job.attempt_state.sealed) from error
            raise

    def _run_attempt(self, job: Job[TaskCall]) -> Any:
        """Call the function, then end the job or go on with what follows it."""
        began = time.monotonic()
        call = job.input
        expired_at = call.expired_at(job.claimed.created_at)
        if expired_at is not None and job.claimed.claimed_at > expired_at:
            return Cancel(f"expired at {to_datetime(expired_at):%Y-%m-%d %H:%M:%S} UTC")
        if job.attempt > 1 and is_revoked(self._app, job.id):
            return Cancel("revoked")
        args, kwargs = self._arguments_of(job)
        retries = self._retries_of(job)
        request = TaskRequest(
            id=call.task_id or str(job.id),
            task=self._task.name,
            args=args,
            kwargs=kwargs,
            retries=retries,
            root_id=str(job.chain_id),
            hostname=job.worker,
            called_directly=False,
            headers=untag_value(call.headers),
            job=job,
            app=self._app,
        )
        if task_received.has_listeners():
            task_received.send(self._app, request=received_request(self._task, request, expired_at))
        try:
            value = self._attempt(request)
        finally:
            forget_state(request)
        if isinstance(value, Cancel | Continue | Snooze):
            return value
        result = tag(value, f"the result of {self._task.name}")
        if call.then or call.link:
            return self._go_on(job, result, began)
        return self._kept(call, result)

    def _kept(self, call: TaskCall, result: Any) -> Any:
        """Return what is kept of a result, by what the call says, the decorator or the settings."""
        own, setting = self._task.options.ignore_result, self._app.conf.task_ignore_result
        said = (call.ignore_result, own, setting)
        return None if next(each for each in said if each is not None) else result

    def _go_on(self, job: Job[TaskCall], result: Any, began: float) -> Any:
        """Start what is linked as the job completes, or not at all, and continue the chain if that is not its end."""
        call, tx = job.input, None
        then = call.then and send_before_publish(self._app, call.then, [result], str(job.chain_id))
        if call.link:
            linked = [send_before_publish(self._app, each, [result]) for each in call.link]
            with job.complete() as done:
                tx = done.tx
                for each in linked:
                    start_steps(self._app, tx, each, [result])
        return (
            _continue_chain(job, self._app, then, result, began, tx)
            if then
            else self._kept(call, result)
        )

    def end_failed(self, job: Job[TaskCall]) -> None:
        """Start what is linked to the failure of a task, in the transaction in which that is recorded."""
        call, failing = job.input, job.attempt_state.failing
        if not call.link_error:
            return
        failed = FailedCall(
            id=call.task_id or str(job.id),
            task=self._task.name,
            error=job.error or "",
            root_id=str(job.chain_id),
            args=call.args,
            kwargs=call.kwargs,
            retries=0 if failing is None else max(0, failing.attempt - 1),
            headers=call.headers,
        )
        linked = [send_before_publish(self._app, each) for each in call.link_error]
        with job.complete() as done:
            for each in linked:
                start_errback(self._app, done.tx, each, failed)

    def _arguments_of(self, job: Job[TaskCall]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return what the function is called with. Raises: InputUnreadable for an enum that is not there."""
        call = job.input
        try:
            args, kwargs = untag_value(call.args), untag_arguments(call.kwargs)
            if call.collect:
                args = [untag_value([each.output for each in job.blockers]), *args]
            first = (
                () if call.failed is None else self._task.errback_arguments(*_failure(call.failed))
            )
            return (*first, *args), kwargs
        except LookupError as error:
            raise InputUnreadable(str(error), job_id=str(job.id), help="") from error

    def _retries_of(self, job: Job[TaskCall]) -> int:
        """Count the retries so far. A message that is delivered again has as many: the death of a worker is none.

        Raises: TimeLimitExceeded when the attempt before ran too long and none was left.
        """
        if job.attempt == 1:
            return 0
        # One that was redriven counts from 1 again, after what it had before.
        earlier = {each.attempt: each for each in self._app.jobs.attempts(job.id)}
        ended = [earlier.get(number) for number in range(1, job.attempt)]
        retries = sum(each is None or each.kind != "reap" for each in ended)
        last, allowed = ended[-1], self._task.options.timeout_retries
        error = "" if last is None else last.error or ""
        if error.startswith("TimedOut: ") and allowed is not None and retries > allowed:
            # The worker cut it off, and could not know that it has no retries.
            raise TimeLimitExceeded(error.removeprefix("TimedOut: "))
        return retries

    def _attempt(self, request: TaskRequest) -> Any:
        assert request.job is not None
        try:
            return call_with(self._task, request)
        except NOT_FAILURES:
            raise
        except (Exception, SystemExit) as error:
            sealed = request.job.attempt_state.sealed
            delay_ms = self._retry_delay_ms(error, request.retries)
            if delay_ms is not None and is_revoked(self._app, request.job.id):
                return Cancel("revoked")
            raise record_error(error, sealed=sealed, retry_after_ms=delay_ms) from error

    def _retry_delay_ms(self, error: BaseException, retries: int) -> int | None:
        """Return how long the task waits before it is retried after an error; None for one that is final."""
        if isinstance(error, TaskRetry):
            return error.retry_after_ms
        options = self._task.options
        return options.delay_ms(retries) if options.is_retried(error, retries) else None


def collect_results(job: Job[TaskCall], app: Celery) -> Any:
    """End a group whose results no task takes: they become the chain's output, or what follows is given them."""
    began = time.monotonic()
    results = [each.output for each in job.blockers]
    if not job.input.then:
        return results
    then = send_before_publish(app, job.input.then, [results], str(job.chain_id))
    return _continue_chain(job, app, then, results, began)


def _failure(failed: FailedCall) -> tuple[TaskRequest, Exception, str]:
    """Return a task that failed, what it raised, and where."""
    request = TaskRequest(
        id=failed.id,
        task=failed.task,
        args=tuple(untag_value(failed.args)),
        kwargs=untag_arguments(failed.kwargs),
        retries=failed.retries,
        root_id=failed.root_id,
        called_directly=False,
        headers=untag_value(failed.headers),
    )
    return request, read_error(failed.error), read_traceback(failed.error)


def _continue_chain(
    job: Job[TaskCall], app: Celery, steps: Steps, result: Any, began: float, tx: Any = None
) -> Any:
    """Continue the chain with its next step; the members of a group start as the job completes, or not at all.

    tx: the transaction that completes the job, if one is open.
    """
    step, then = steps[0], steps[1:]
    if not isinstance(step, GroupStep):
        spent_ms = round((time.monotonic() - began) * 1000)
        return continue_with(step, input_of(step, [result], then), spent_ms)
    body, rest = after_group(then)
    with nullcontext() if tx is not None else job.complete() as done:
        members = start_members(app, done.tx if done else tx, step.members, [result])
        spent_ms = round((time.monotonic() - began) * 1000)
        taking = input_of(body, (), rest, collect=True)
        if body.task != COLLECT or not job.attempt_state.sealed:
            # Only its members are given the result, and this job is where it is looked for; but that one is not sealed.
            taking = msgspec.structs.replace(taking, given=result)
        return continue_with(body, taking, spent_ms, members)
