"""Tasks: what a decorator makes of a function, how it is started, and how an attempt of it runs, is retried or ends."""

from __future__ import annotations

import inspect
import logging
import random
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.core.duration import milliseconds
from holdfast.core.errors import (
    Aborted,
    Busy,
    DatabaseUnreachable,
    InputUnreadable,
    InvalidOption,
    LeaseLost,
    Permanent,
)
from holdfast.core.flow import Rate
from holdfast.core.instants import to_datetime
from holdfast.core.outcome import Cancel, Continue, Snooze
from holdfast.core.registry import TypeOptions, check_name
from holdfast.core.retry import Retry
from holdfast.core.signatures import check_kind, is_async
from holdfast.worker.job import Job
from holdfast_celery.calls import (
    COLLECT,
    MAP,
    NO_OPTIONS,
    STARMAP,
    CallOptions,
    FailedCall,
    GroupStep,
    Steps,
    TaskCall,
    check_eta,
    continue_with,
    input_of,
    read_options,
    tag,
    untag_arguments,
)
from holdfast_celery.canvas import (
    Signature,
    TaskChunks,
    TaskSignature,
    after_group,
    map_items,
    starmap_items,
    start_errback,
    start_members,
    start_steps,
)
from holdfast_celery.coverage import (
    check_always_so,
    check_names,
    find_feature,
    refuse,
    refuse_attributes,
)
from holdfast_celery.django_transaction import on_django_commit
from holdfast_celery.errors import ArgumentsInvalid, CeleryUnsupported
from holdfast_celery.exceptions import (
    ExceptionInfo,
    MaxRetriesExceededError,
    RecordedError,
    TaskRetry,
    TimeLimitExceeded,
    read_error,
    read_traceback,
    record_error,
)
from holdfast_celery.expected_errors import log_as_expected
from holdfast_celery.messages import received_request, send_before_publish
from holdfast_celery.result import AsyncResult
from holdfast_celery.revocation import is_revoked
from holdfast_celery.scope import (
    TaskRequest,
    current_celery,
    current_request,
    joins_transaction,
)
from holdfast_celery.signals import (
    first_task,
    task_failure,
    task_internal_error,
    task_postrun,
    task_prerun,
    task_received,
    task_retry,
    task_success,
)
from holdfast_celery.task_state import forget_state, report_state
from holdfast_values.tagged_values import untag_value

if TYPE_CHECKING:
    from holdfast_celery.application import Celery
    from holdfast_celery.eager import EagerResult

DEFAULT_RETRIES = 3
DEFAULT_DELAY_S = 180.0
BACKOFF_MAX_S = 600.0

NO_TIME_LIMIT = "365d"
"""How long an attempt may take that Celery does not limit, instead of a job's three leases."""

CUT_OFF_ATTEMPTS = 2
"""How often an attempt that its worker's death cut off is made again beside the retries."""

Errors = tuple[type[BaseException], ...]

_NOT_FAILURES = (Snooze, Busy, Aborted, LeaseLost, InputUnreadable)
"""What a task may raise that the worker understands by itself."""


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """What a decorator says of a task, with Celery's defaults."""

    bind: bool = False
    max_retries: int | None = DEFAULT_RETRIES
    default_retry_delay: float = DEFAULT_DELAY_S
    autoretry_for: Errors = ()
    dont_autoretry_for: Errors = ()
    throws: Errors = ()
    retry_backoff: float = 0
    retry_backoff_max: float = BACKOFF_MAX_S
    retry_jitter: bool = True
    time_limit: float | None = None
    rate_limit: str | int | None = None
    ignore_result: bool | None = None
    sealed: bool = False
    defaults: CallOptions = NO_OPTIONS

    @classmethod
    def read(cls, given: Mapping[str, Any], task: str) -> TaskOptions:
        """Check the options of a decorator. Raises: CeleryUnsupported, InvalidOption, InvalidDuration."""
        check_names("task option", given, task)
        check_always_so("task option", given, task)
        options = {name: value for name, value in given.items() if name in cls.__slots__}
        options |= _fold_retry_options(given.get("retry_kwargs"), task)
        call = {name: given[name] for name in sorted(_CALL_DEFAULTS) if name in given}
        _check_task_options(options)
        for name in ("autoretry_for", "dont_autoretry_for", "throws"):
            if name in options:
                options[name] = tuple(options[name])
        if "retry_backoff" in options:
            # True is Celery's way to say 1 second.
            options["retry_backoff"] = float(options["retry_backoff"])
        return cls(**options, defaults=read_options(call, task))

    def delay_ms(self, retries: int) -> int:
        """Return how long the next retry waits, after so many."""
        if not self.retry_backoff:
            return milliseconds(self.default_retry_delay)
        # Beyond this exponent the maximum decides anyway.
        delay = min(self.retry_backoff_max, self.retry_backoff * 2 ** min(retries, 40))
        return milliseconds(delay * random.random() if self.retry_jitter else delay)

    @property
    def timeout_retries(self) -> int | None:
        """How often the task is retried after an attempt that ran too long."""
        return self.max_retries if self.bind or self.autoretry_for else 0

    def policy(self) -> Retry:
        """Return the policy for what the task cannot decide itself: an attempt that was cut off.

        Which exceptions are retried, and how often, an attempt decides when one is raised.
        """
        retries = self.timeout_retries
        # A bound task says with each retry how many there may be.
        limit = None if self.bind or retries is None else 1 + retries + CUT_OFF_ATTEMPTS
        base = 1 if retries == 0 else self.retry_backoff or self.default_retry_delay
        return Retry(
            base=base,
            cap=max(base, self.retry_backoff_max) if self.retry_backoff else base,
            multiplier=2 if self.retry_backoff else 1,
            max_attempts=limit,
        )


_CALL_DEFAULTS = frozenset({"priority", "expires", "queue"})
_NOT_OF_CLASSES = frozenset({"defaults", "bind"})

_log = logging.getLogger("holdfast.celery")
_entering: ContextVar[CeleryTask | None] = ContextVar("holdfast_celery_entering", default=None)
"""The task whose attempt is about to call it."""

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_NUMBER = (int, float)
_KINDS: Mapping[str, tuple[type, ...]] = {
    "bind": (bool,),
    "max_retries": (int, type(None)),
    "default_retry_delay": _NUMBER,
    "autoretry_for": (tuple, list),
    "dont_autoretry_for": (tuple, list),
    "throws": (tuple, list),
    "retry_backoff": (int, float, bool),
    "retry_backoff_max": _NUMBER,
    "retry_jitter": (bool,),
    "time_limit": (int, float, type(None)),
    "rate_limit": (str, int, type(None)),
    "ignore_result": (bool,),
    "sealed": (bool,),
}
_PERIODS = {"s": "1s", "m": "1m", "h": "1h"}


def _check_task_options(options: Mapping[str, Any]) -> None:
    for name, value in options.items():
        check_kind(name, value, _KINDS[name])
    retries = options.get("max_retries")
    if retries is not None and retries < 0:
        raise InvalidOption(f"max_retries={retries} is less than 0", help="None means no limit")
    rate_of(options.get("rate_limit"))


def rate_of(rate_limit: str | int | None, name: str | None = None) -> list[Rate]:
    """Return the rates of a limit such as "10/m", or of a number per second. Raises: InvalidOption."""
    if rate_limit is None:
        return []
    number, _, unit = str(rate_limit).replace(" ", "").partition("/")
    if not number.isdecimal() or (unit or "s") not in _PERIODS:
        raise InvalidOption(
            f"rate_limit={rate_limit!r} is not a rate", help='write "10/s", "10/m" or "10/h"'
        )
    return [Rate(int(number), _PERIODS[unit or "s"], name=name)]


def _fold_retry_options(retry_kwargs: Any, task: str) -> dict[str, Any]:
    """Return the options that autoretry_for's keyword arguments stand for."""
    places = {"max_retries": "max_retries", "countdown": "default_retry_delay"}
    for name in retry_kwargs or {}:
        if name not in places:
            raise refuse("retry option", name, f"retry_kwargs of {task}")
    return {places[name]: value for name, value in (retry_kwargs or {}).items()}


class CeleryTask:
    """A function that can be called, or started as a job of the type that has its name."""

    MaxRetriesExceededError = MaxRetriesExceededError
    OperationalError = DatabaseUnreachable
    acks_late = True

    def set_up(
        self,
        function: Callable[..., Any],
        given: Mapping[str, Any],
        *,
        main: str | None = None,
        app: Celery | None = None,
    ) -> None:
        """Take the function and the decorator's options. Raises: CeleryUnsupported, InvalidName, InvalidOption."""
        given = _options_of(type(self)) | dict(given)
        theirs = _name_in_celery(function)
        function = _bare(function)
        module = function.__module__
        own = f"{main or module if module == '__main__' else module}.{function.__name__}"
        self.name = check_name(given.get("name") or theirs or own)
        self.options = TaskOptions.read(given, self.name)
        if is_async(function):
            raise CeleryUnsupported(
                f"{self.name} is async, but Celery tasks cannot be",
                help=f'write @app.job("{self.name}") and take the job: async def {function.__name__}(job)',
            )
        for name in given.keys() & vars(type(self)).keys():
            # What the decorator says of an attribute that the base class has, too.
            self.__dict__[name] = given[name]
        log_as_expected(self.name, self.options.throws)
        self._function = function
        self._signature = inspect.signature(function)
        self._app = app
        self.__name__ = function.__name__
        self.__doc__ = function.__doc__
        self.__module__ = module
        self.__wrapped__ = function

    if not TYPE_CHECKING:
        __getattr__ = refuse_attributes("task attribute", of="name")

    @property
    def app(self) -> Celery:
        """The application it belongs to; for a shared task the current one."""
        return self._app or current_celery()

    @property
    def request(self) -> TaskRequest:
        """The attempt that is running."""
        return current_request.get()

    @property
    def max_retries(self) -> int | None:
        """How many retries follow the first attempt."""
        return self.options.max_retries

    @property
    def default_retry_delay(self) -> float:
        """Seconds before a retry."""
        return self.options.default_retry_delay

    @property
    def throws(self) -> Errors:
        """The errors that are expected of it."""
        return self.options.throws

    @property
    def time_limit(self) -> float | None:
        """Seconds that an attempt may take."""
        return self.options.time_limit

    @property
    def rate_limit(self) -> str | int | None:
        """How many may start in a second, a minute or an hour."""
        return self.options.rate_limit

    @property
    def ignore_result(self) -> bool:
        """Whether its result is dropped."""
        said = self.options.ignore_result
        return self.app.conf.task_ignore_result if said is None else said

    @property
    def priority(self) -> int | None:
        """What its jobs are started with."""
        return self.options.defaults.priority

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function."""
        return self._function(*((self, *args) if self.options.bind else args), **kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function: in a worker as part of the attempt, elsewhere as an attempt of its own."""
        if _entering.get() is self:
            # The attempt calls the task where a base class has wrapped this, and the request stays.
            _entering.set(None)
            return self.run(*args, **kwargs)
        token = current_request.set(TaskRequest(task=self.name, args=args, kwargs=kwargs))
        try:
            return self.run(*args, **kwargs)
        finally:
            current_request.reset(token)

    def delay(self, *args: Any, **kwargs: Any) -> AsyncResult:
        """Start it. Raises: see `apply_async`."""
        return self.apply_async(args, kwargs)

    def apply_async(
        self,
        args: Iterable[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> AsyncResult:
        """Start it in a transaction of its own, in that of an `app.using(tx)` block, or in Django's that is open.

        Raises: ArgumentsInvalid, PayloadNotEncodable, CeleryUnsupported, InvalidOption, and the errors of the database.
        """
        given, named = tuple(args or ()), dict(kwargs or {})
        self._check_call(given, named)
        found: AsyncResult = Signature.apply_async(self._sign(given, named), **options)
        return found

    def overrides(self, method: str) -> bool:
        """Whether a base class has its own version of a method."""
        return getattr(type(self), method) is not getattr(CeleryTask, method)

    def before_start(self, task_id: str, args: Any, kwargs: Any) -> None:
        """Do something before each attempt; for base classes, as all of these. What it raises fails the attempt."""

    def on_success(self, retval: Any, task_id: str, args: Any, kwargs: Any) -> None:
        """Do something after an attempt that completed, before that is recorded."""

    def on_failure(
        self, exc: Exception, task_id: str, args: Any, kwargs: Any, einfo: ExceptionInfo
    ) -> None:
        """Do something after an attempt that failed for good."""

    def on_retry(
        self, exc: Exception, task_id: str, args: Any, kwargs: Any, einfo: ExceptionInfo
    ) -> None:
        """Do something after an attempt that is retried."""

    def after_return(
        self, status: str, retval: Any, task_id: str, args: Any, kwargs: Any, einfo: Any
    ) -> None:
        """Do something after each of these; `status` is SUCCESS, FAILURE or RETRY."""

    def apply(
        self,
        args: Iterable[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        throw: bool | None = None,
        **options: Any,
    ) -> EagerResult:
        """Run it in this process, with its retries; `throw` raises what it raises. Raises: see `apply_async`."""
        given, named = tuple(args or ()), dict(kwargs or {})
        self._check_call(given, named)
        found: EagerResult = self._sign(given, named).apply(throw=throw, **options)
        return found

    def delay_on_commit(self, *args: Any, **kwargs: Any) -> None:
        """Start it if Django's transaction commits. Raises: see `apply_async`, CeleryUnsupported without Django."""
        self.apply_async_on_commit(args, kwargs)

    def apply_async_on_commit(
        self,
        args: Iterable[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        """Start it if Django's transaction commits: as part of that, or after it where Holdfast has another database.

        Raises: see `apply_async`, CeleryUnsupported without Django.
        """
        start = partial(self.apply_async, args, kwargs, **options)
        if joins_transaction(self.app) and not self.app.conf.task_always_eager:
            start()
        elif not on_django_commit(start):
            raise CeleryUnsupported(
                "delay_on_commit needs Django's transactions", help="write `with app.using(tx):`"
            )

    def s(self, *args: Any, **kwargs: Any) -> TaskSignature:
        """Return its signature: in a chain, the result before it is its first argument."""
        return self._sign(args, kwargs)

    def si(self, *args: Any, **kwargs: Any) -> TaskSignature:
        """Return its signature with all of its arguments: in a chain it takes no result."""
        return self._sign(args, kwargs).set(immutable=True)

    def signature(
        self,
        args: Iterable[Any] | None = (),
        kwargs: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> TaskSignature:
        """Return its signature with options. Raises: CeleryUnsupported."""
        return self._sign(args, kwargs).set(**options)

    def map(self, it: Iterable[Any]) -> TaskSignature:
        """Return the signature of one task that calls this one for each item, and returns the results as a list."""
        return map_items(self.name, it, self._app)

    def starmap(self, it: Iterable[Iterable[Any]]) -> TaskSignature:
        """Return the same for items that are lists of arguments."""
        return starmap_items(self.name, it, self._app)

    def chunks(self, it: Iterable[Iterable[Any]], n: int) -> TaskChunks:
        """Return a group of `starmap`s, each for `n` of the items."""
        items = list(it)
        return TaskChunks(self.starmap(items[i : i + n]) for i in range(0, len(items), n))

    def update_state(
        self, task_id: str | None = None, state: str | None = None, meta: Any = None, **more: Any
    ) -> None:
        """Record a state of this attempt, which `result.state` and `result.info` show while it runs.

        Raises: CeleryUnsupported outside a task and for another one, PayloadNotEncodable, errors of the database.
        """
        for name in more:
            raise refuse("task attribute", "update_state", f"{self.name}({name}=…)")
        report_state(self.request, task_id, state, meta, sealed=self.options.sealed)

    def AsyncResult(self, task_id: str) -> AsyncResult:  # noqa: N802
        """Return a result by its id."""
        return AsyncResult(task_id, self._app)

    def retry(
        self,
        exc: BaseException | None = None,
        countdown: float | None = None,
        eta: datetime | None = None,
        max_retries: int | None = None,
        **options: Any,
    ) -> TaskRetry:
        """End this attempt and try again later; it always raises, and `raise self.retry(…)` says so to readers.

        Raises: TaskRetry, `exc` or MaxRetriesExceededError when no retry is left, CeleryUnsupported.
        """
        check_names("retry option", options, self.name)
        request = self.request
        allowed = self.options.max_retries if max_retries is None else max_retries
        if request.called_directly:
            raise exc or TaskRetry("Task can be retried")
        if allowed is not None and request.retries >= allowed:
            # The attempt's end marks it as final, whatever it is.
            raise exc or MaxRetriesExceededError(
                f"{self.name} was retried {allowed} times",
                help="raise max_retries, or fix the cause",
            )
        when: float | datetime = self.options.default_retry_delay
        if eta is not None:
            check_eta("eta", eta)
            when = eta
        elif countdown is not None:
            when = max(0.0, float(countdown))
        raise TaskRetry(exc=exc, when=when, is_eager=request.is_eager) from exc

    def job_options(self, app: Celery) -> TypeOptions:
        """Return the options of its job type."""
        found: TypeOptions = {
            "retry": self.options.policy(),
            "on_failed": partial(self.end_failed, app=app),
            "timeout": self.options.time_limit or app.conf.task_time_limit or NO_TIME_LIMIT,
        }
        if self.options.rate_limit is not None:
            # Types that share a name share the limit: a task has one, whatever its queues.
            found["rates"] = rate_of(self.options.rate_limit, self.name if app.queues else None)
        if self.options.sealed:
            found["sealed"] = True
        return found

    def run_job(self, job: Job[TaskCall], app: Celery) -> Any:
        """Run one attempt, and record what it raised. Raises: RecordedError, and what the worker understands."""
        first_task.begin(app)
        try:
            return self._run_attempt(job, app)
        except (RecordedError, *_NOT_FAILURES):
            raise
        except Exception as error:
            # Not of the task itself: a result that cannot be stored, or a database that was away.
            call = job.input
            id, args = call.task_id or str(job.id), tuple(call.args)
            request = TaskRequest(id=id, task=self.name, args=args, kwargs=call.kwargs, job=job)
            self._send_internal_error(error, request)
            allowed = self.options.timeout_retries
            is_last = allowed is not None and job.attempt > allowed + CUT_OFF_ATTEMPTS
            if is_last or getattr(error, "retryable", True) is False:
                raise record_error(error, sealed=job.attempt_state.sealed) from error
            raise

    def _run_attempt(self, job: Job[TaskCall], app: Celery) -> Any:
        """Call the function, then end the job or go on with what follows it."""
        began = time.monotonic()
        call = job.input
        expired_at = call.expired_at(job.claimed.created_at)
        if expired_at is not None and job.claimed.claimed_at > expired_at:
            return Cancel(f"expired at {to_datetime(expired_at):%Y-%m-%d %H:%M:%S} UTC")
        if job.attempt > 1 and is_revoked(app, job.id):
            return Cancel("revoked")
        args, kwargs = self._arguments_of(job)
        retries = self._retries_of(job, app)
        request = TaskRequest(
            id=call.task_id or str(job.id),
            task=self.name,
            args=args,
            kwargs=kwargs,
            retries=retries,
            root_id=str(job.chain_id),
            hostname=job.worker,
            called_directly=False,
            headers=untag_value(call.headers),
            job=job,
            app=app,
        )
        if task_received.has_listeners():
            task_received.send(app, request=received_request(self, request, expired_at))
        try:
            value = self._attempt(request)
        finally:
            forget_state(request)
        if isinstance(value, Cancel | Continue | Snooze):
            return value
        result = tag(value, f"the result of {self.name}")
        if call.then or call.link:
            return self._go_on(job, app, result, began)
        return self._kept(app, call, result)

    def _kept(self, app: Celery, call: TaskCall, result: Any) -> Any:
        """Return what is kept of a result, by what the call says, the decorator or the settings."""
        said = (call.ignore_result, self.options.ignore_result, app.conf.task_ignore_result)
        return None if next(each for each in said if each is not None) else result

    def _go_on(self, job: Job[TaskCall], app: Celery, result: Any, began: float) -> Any:
        """Start what is linked as the job completes, or not at all, and continue the chain if that is not its end."""
        call, tx = job.input, None
        then = call.then and send_before_publish(app, call.then, [result], str(job.chain_id))
        if call.link:
            linked = [send_before_publish(app, each, [result]) for each in call.link]
            with job.complete() as done:
                tx = done.tx
                for each in linked:
                    start_steps(app, tx, each, [result])
        return _go_on(job, app, then, result, began, tx) if then else self._kept(app, call, result)

    def end_failed(self, job: Job[TaskCall], app: Celery) -> None:
        """Start what is linked to the failure of a task, in the transaction in which that is recorded."""
        call, failing = job.input, job.attempt_state.failing
        if not call.link_error:
            return
        failed = FailedCall(
            id=call.task_id or str(job.id),
            task=self.name,
            error=job.error or "",
            root_id=str(job.chain_id),
            args=call.args,
            kwargs=call.kwargs,
            retries=0 if failing is None else max(0, failing.attempt - 1),
            headers=call.headers,
        )
        linked = [send_before_publish(app, each) for each in call.link_error]
        with job.complete() as done:
            for each in linked:
                start_errback(app, done.tx, each, failed)

    def _arguments_of(self, job: Job[TaskCall]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return what the function is called with. Raises: InputUnreadable for an enum that is not there."""
        call = job.input
        try:
            args, kwargs = untag_value(call.args), untag_arguments(call.kwargs)
            if call.collect:
                args = [untag_value([each.output for each in job.blockers]), *args]
            first = () if call.failed is None else self.errback_arguments(*_failure(call.failed))
            return (*first, *args), kwargs
        except LookupError as error:
            raise InputUnreadable(str(error), job_id=str(job.id), help="") from error

    def errback_arguments(
        self, request: TaskRequest, error: Exception, traceback: str
    ) -> tuple[Any, ...]:
        """Return what it is given as an error callback: all of these, or the id of the failed task if it takes one."""
        kinds = [each.kind for each in self._signature.parameters.values()]
        places = sum(each in _POSITIONAL for each in kinds) - self.options.bind
        if places <= 1 and inspect.Parameter.VAR_POSITIONAL not in kinds:
            return (request.id,)
        return request, error, traceback

    def _retries_of(self, job: Job[TaskCall], app: Celery) -> int:
        """Count the retries so far. A message that is delivered again has as many: the death of a worker is none.

        Raises: TimeLimitExceeded when the attempt before ran too long and none was left.
        """
        if job.attempt == 1:
            return 0
        # One that was redriven counts from 1 again, after what it had before.
        earlier = {each.attempt: each for each in app.jobs.attempts(job.id)}
        ended = [earlier.get(number) for number in range(1, job.attempt)]
        retries = sum(each is None or each.kind != "reap" for each in ended)
        last, allowed = ended[-1], self.options.timeout_retries
        error = "" if last is None else last.error or ""
        if error.startswith("TimedOut: ") and allowed is not None and retries > allowed:
            # The worker cut it off, and could not know that it has no retries.
            raise TimeLimitExceeded(error.removeprefix("TimedOut: "))
        return retries

    def _attempt(self, request: TaskRequest) -> Any:
        assert request.job is not None
        try:
            return self.call_with(request)
        except _NOT_FAILURES:
            raise
        except (Exception, SystemExit) as error:
            sealed = request.job.attempt_state.sealed
            delay_ms = self._retry_delay_ms(error, request.retries)
            if delay_ms is not None and is_revoked(self.app, request.job.id):
                return Cancel("revoked")
            raise record_error(error, sealed=sealed, retry_after_ms=delay_ms) from error

    def call_with(self, request: TaskRequest) -> Any:
        """Call the function as the attempt that a request describes, with the hooks and signals around it."""
        token = current_request.set(request)
        named = {"task_id": request.id, "args": request.args, "kwargs": request.kwargs}
        id, args, kwargs = str(request.id), request.args, request.kwargs
        try:
            task_prerun.send(self, task=self, **named)
            try:
                self.before_start(id, args, kwargs)
                value = self._enter(*args, **kwargs)
            except _NOT_FAILURES:
                raise
            except (Exception, SystemExit) as error:
                # sys.exit() ends the task, not the worker.
                status, value = self._on_error(error, request)
                self._end(request, status, value)
                raise
            if not isinstance(value, Cancel | Continue | Snooze):
                self._call_hook(self.on_success, value, id, args, kwargs)
                task_success.send(self, result=value)
                self._end(request, "SUCCESS", value)
            return value
        finally:
            current_request.reset(token)

    def _enter(self, *args: Any, **kwargs: Any) -> Any:
        if not self.overrides("__call__"):
            return self.run(*args, **kwargs)
        token = _entering.set(self)
        try:
            return self(*args, **kwargs)
        finally:
            _entering.reset(token)

    def _on_error(self, error: BaseException, request: TaskRequest) -> tuple[str, BaseException]:
        """Call the hook of an error, and send its signal."""
        einfo = ExceptionInfo(error)
        id, args, kwargs = str(request.id), request.args, request.kwargs
        if isinstance(error, TaskRetry) or self.is_retried(error, request.retries):
            reason = error if isinstance(error, TaskRetry) else TaskRetry(exc=error)
            cause = reason.exc if isinstance(reason.exc, Exception) else reason
            self._call_hook(self.on_retry, cause, id, args, kwargs, einfo)
            task_retry.send(self, request=request, reason=reason, einfo=einfo)
            return "RETRY", error
        self._call_hook(self.on_failure, error, id, args, kwargs, einfo)
        task_failure.send(
            self,
            task_id=id,
            exception=error,
            args=args,
            kwargs=kwargs,
            traceback=error.__traceback__,
            einfo=einfo,
        )
        return "FAILURE", error

    def _end(self, request: TaskRequest, status: str, value: Any) -> None:
        id, args, kwargs = str(request.id), request.args, request.kwargs
        self._call_hook(self.after_return, status, value, id, args, kwargs, None)
        task_postrun.send(
            self, task_id=id, task=self, args=args, kwargs=kwargs, retval=value, state=status
        )

    def _call_hook(self, hook: Callable[..., Any], *args: Any) -> None:
        """Call a hook after the task; one that fails is logged, and changes nothing of the outcome."""
        try:
            hook(*args)
        except Exception as error:
            _log.exception("%s of task %s failed", hook.__name__, self.name)
            self._send_internal_error(error, self.request)

    def _send_internal_error(self, error: Exception, request: TaskRequest) -> None:
        """Send the signal of an error that is not the task's own."""
        task_internal_error.send(
            self,
            task_id=request.id,
            args=request.args,
            kwargs=request.kwargs,
            request=request,
            exception=error,
            traceback=error.__traceback__,
            einfo=ExceptionInfo(error),
        )

    def _retry_delay_ms(self, error: BaseException, retries: int) -> int | None:
        """Return how long the task waits before it is retried after an error; None for one that is final."""
        if isinstance(error, TaskRetry):
            return error.retry_after_ms
        return self.options.delay_ms(retries) if self.is_retried(error, retries) else None

    def is_retried(self, error: BaseException, retries: int) -> bool:
        """Whether an error that the task raised after so many retries is retried."""
        options = self.options
        if options.max_retries is not None and retries >= options.max_retries:
            return False
        if isinstance(error, Permanent):
            return False
        return isinstance(error, options.autoretry_for) and not isinstance(
            error, options.dont_autoretry_for
        )

    def _check_call(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Refuse arguments that the function does not take, where the mistake is."""
        try:
            self._signature.bind(*((self, *args) if self.options.bind else args), **kwargs)
        except TypeError as error:
            raise ArgumentsInvalid(f"{self.name} cannot be called: {error}", help="") from error

    def _sign(
        self, args: Iterable[Any] | None = (), kwargs: Mapping[str, Any] | None = None
    ) -> TaskSignature:
        return TaskSignature(self.name, args, kwargs, app=self._app)

    def __repr__(self) -> str:
        return f"<task {self.name}>"


def make_task(
    function: Callable[..., Any],
    given: Mapping[str, Any],
    *,
    main: str | None = None,
    app: Celery | None = None,
) -> CeleryTask:
    """Make a task of a function, of the class that `base` names.

    Raises: CeleryUnsupported, InvalidName, InvalidOption.
    """
    options = dict(given)
    base = options.pop("base", None) or CeleryTask
    if not (isinstance(base, type) and issubclass(base, CeleryTask)):
        raise InvalidOption(
            f"base={repr(base)[:60]} is not a task's class",
            help="derive it from holdfast_celery.Task",
        )
    task = base.__new__(base)
    # A base class may have a constructor of its own, which takes nothing.
    task.set_up(function, options, main=main, app=app)
    task.__init__()  # type: ignore[misc]
    return task


def _options_of(base: type[CeleryTask]) -> dict[str, Any]:
    """Return the options of a decorator that a base class has as attributes."""
    found: dict[str, Any] = {}
    for each in reversed(base.__mro__[: base.__mro__.index(CeleryTask)]):
        names = vars(each).keys() & (
            frozenset(TaskOptions.__slots__) | _CALL_DEFAULTS | {"retry_kwargs"}
        )
        found |= {name: vars(each)[name] for name in names if name not in _NOT_OF_CLASSES}
        for name in vars(each):
            feature = find_feature("task option", name)
            if feature is not None and not feature.is_covered and not callable(vars(each)[name]):
                raise refuse("task option", name, base.__name__)
    return found


def mapping_tasks(app: Celery) -> dict[str, CeleryTask]:
    """Return the tasks of an application that call another one for each item of a list."""

    def call_each(task: str, it: list[Any]) -> list[Any]:
        called = app.task_of(task)
        return [called(each) for each in it]

    def call_each_with(task: str, it: list[Any]) -> list[Any]:
        called = app.task_of(task)
        return [called(*each) for each in it]

    made = [(MAP, call_each), (STARMAP, call_each_with)]
    return {name: make_task(function, {"name": name}, app=app) for name, function in made}


def handler_of(task: CeleryTask, app: Celery) -> Callable[[Job[TaskCall]], Any]:
    """Return the handler of a task's job type, with the application's sync middlewares around it."""

    def handle(job: Job[TaskCall]) -> Any:
        call: Callable[[], Any] = partial(task.run_job, job, app)
        for middleware in reversed(app.sync_middlewares):
            call = partial(middleware, job, call)
        return call()

    handle.__qualname__ = handle.__name__ = task.__name__
    handle.__module__ = str(task.__module__)
    return handle


def collect_results(job: Job[TaskCall], app: Celery) -> Any:
    """End a group whose results no task takes: they become the chain's output, or what follows is given them."""
    began = time.monotonic()
    results = [each.output for each in job.blockers]
    if not job.input.then:
        return results
    then = send_before_publish(app, job.input.then, [results], str(job.chain_id))
    return _go_on(job, app, then, results, began)


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


def _go_on(
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


def _name_in_celery(function: Any) -> str | None:
    """Return the name of a task of Celery's, which stays to drain what its broker still holds."""
    return str(function.name) if hasattr(function, "apply_async") else None


def _bare(function: Any) -> Callable[..., Any]:
    """Return the function itself, also of a task of Celery's."""
    inner = getattr(function, "__wrapped__", None) if hasattr(function, "apply_async") else None
    # Celery keeps that of bind=True as a method of its own task.
    bare: Callable[..., Any] = function if inner is None else getattr(inner, "__func__", inner)
    return bare
