"""Tasks: what a decorator makes of a function, and how that is called, started, signed and retried."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import DatabaseUnreachable, InvalidOption
from holdfast.core.registry import check_name
from holdfast.core.signatures import is_async
from holdfast_celery.calls import MAP, STARMAP, check_eta
from holdfast_celery.canvas import Signature, TaskChunks, TaskSignature, map_items, starmap_items
from holdfast_celery.coverage import (
    CALLED_BY_CELERY,
    check_always_so,
    check_names,
    find_feature,
    is_always_so,
    refuse,
    refuse_attributes,
)
from holdfast_celery.django_transaction import on_django_commit
from holdfast_celery.errors import ArgumentsInvalid, CeleryUnsupported
from holdfast_celery.exceptions import ExceptionInfo, MaxRetriesExceededError, TaskRetry
from holdfast_celery.expected_errors import log_as_expected
from holdfast_celery.result import AsyncResult
from holdfast_celery.scope import TaskRequest, current_celery, current_request, joins_transaction
from holdfast_celery.task_options import CALL_DEFAULTS, Errors, TaskOptions
from holdfast_celery.task_state import report_state

if TYPE_CHECKING:
    from holdfast_celery.application import Celery
    from holdfast_celery.eager import EagerResult

_NOT_OF_CLASSES = frozenset({"defaults", "bind"})

_OWN_NAMES = frozenset({"name", "base", "on_failure", "on_success", "on_retry"})
"""Options of a decorator that are attributes of a task as well: its name, and hooks that tests replace."""

_entering: ContextVar[CeleryTask | None] = ContextVar("holdfast_celery_entering", default=None)
"""The task whose attempt is about to call it."""

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


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
        has_base: bool = False,
    ) -> None:
        """Take the function and the decorator's options. Raises: CeleryUnsupported, InvalidName, InvalidOption."""
        self._decorated, self._has_base = given, has_base
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

    def rebase(self, base: type[CeleryTask]) -> None:
        """Become a task of the class that an application has for those without `base`. Raises: as `set_up`.

        A shared task is one object: it has the class of the application that was set last.
        """
        if self._has_base or type(self) is base:
            return
        self.__class__ = base
        self.set_up(self._function, {**self._decorated, "name": self.name}, app=self._app)
        self.__init__()  # type: ignore[misc]

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute of a program's own. Raises: CeleryUnsupported for options, which are read before."""
        if name not in _OWN_NAMES and find_feature("task option", name) is not None:
            check_always_so("task attribute", {name: value}, self.name)
            if not is_always_so(name):
                raise CeleryUnsupported(
                    f"{name} of {self.name} is set after the decorator, where it has no effect",
                    help=f"write @app.task({name}=…)",
                )
        object.__setattr__(self, name, value)

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
        """Do something after an attempt that is not retried; `status` is SUCCESS or FAILURE."""

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

    def errback_arguments(
        self, request: TaskRequest, error: Exception, traceback: str
    ) -> tuple[Any, ...]:
        """Return what it is given as an error callback: all of these, or the id of the failed task if it takes one."""
        kinds = [each.kind for each in self._signature.parameters.values()]
        places = sum(each in _POSITIONAL for each in kinds) - self.options.bind
        if places <= 1 and inspect.Parameter.VAR_POSITIONAL not in kinds:
            return (request.id,)
        return request, error, traceback

    def enter(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function as part of an attempt."""
        if not self.overrides("__call__"):
            return self.run(*args, **kwargs)
        token = _entering.set(self)
        try:
            return self(*args, **kwargs)
        finally:
            _entering.reset(token)

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
    named = options.pop("base", None)
    base = check_base(named or CeleryTask, "base")
    task = base.__new__(base)
    # A base class may have a constructor of its own, which takes nothing.
    task.set_up(function, options, main=main, app=app, has_base=named is not None)
    task.__init__()  # type: ignore[misc]
    return task


def check_base(base: Any, what: str) -> type[CeleryTask]:
    """Return a class of tasks. Raises: InvalidOption."""
    if not (isinstance(base, type) and issubclass(base, CeleryTask)):
        raise InvalidOption(
            f"{what}={repr(base)[:60]} is not a task's class",
            help="derive it from holdfast_celery.Task",
        )
    return base


def _options_of(base: type[CeleryTask]) -> dict[str, Any]:
    """Return the options of a decorator that a base class has as attributes."""
    found: dict[str, Any] = {}
    for each in reversed(base.__mro__[: base.__mro__.index(CeleryTask)]):
        names = vars(each).keys() & (
            frozenset(TaskOptions.__slots__) | CALL_DEFAULTS | {"retry_kwargs"}
        )
        found |= {name: vars(each)[name] for name in names if name not in _NOT_OF_CLASSES}
        check_always_so("task option", vars(each), base.__name__)
        for name, value in vars(each).items():
            feature = find_feature("task option", name)
            if feature is not None and not feature.is_covered and not callable(value):
                raise refuse("task option", name, base.__name__)
            if name in CALLED_BY_CELERY:
                raise refuse("task attribute", name, base.__name__)
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


def _name_in_celery(function: Any) -> str | None:
    """Return the name of a task of Celery's, which stays to drain what its broker still holds."""
    return str(function.name) if hasattr(function, "apply_async") else None


def _bare(function: Any) -> Callable[..., Any]:
    """Return the function itself, also of a task of Celery's."""
    inner = getattr(function, "__wrapped__", None) if hasattr(function, "apply_async") else None
    # Celery keeps that of bind=True as a method of its own task.
    bare: Callable[..., Any] = function if inner is None else getattr(inner, "__func__", inner)
    return bare
