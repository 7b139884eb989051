"""`add_context(app, …)`: what a job is started in is captured, and restored for its handler."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    contextmanager,
    nullcontext,
)
from contextvars import ContextVar
from functools import partial
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, TypeAlias, Unpack

from holdfast.app.registration import CycleOptions
from holdfast.core.errors import OutputInvalid
from holdfast.core.job_context import decode_context, encode_context
from holdfast.core.registry import Target
from holdfast.scheduler.cycle_run import CycleRun
from holdfast.worker.job import Job
from holdfast_context.errors import ContextDeclared, ContextNotEntered
from holdfast_context.tenant_cycles import Values, check_per, start_per_value

if TYPE_CHECKING:
    from holdfast.app import Holdfast

Context: TypeAlias = Mapping[str, str]
Begin: TypeAlias = Callable[[Any, Context], Any]
Entered: TypeAlias = AbstractContextManager[Any] | AbstractAsyncContextManager[Any]

_ATTACHED = "context"


def add_context(
    app: Holdfast,
    *,
    capture: Callable[[], Context],
    enter: Callable[[Context], Entered] | None = None,
    begin: Begin | None = None,
    names: Sequence[str] | None = None,
) -> TravelContext:
    """Give the jobs of an application a context.

    capture: called at each start and publish; returns what is stored, such as `{"tenant": "acme"}`, or `{}`. In a
    handler, names that it leaves out are those of the running job.
    enter: called before each attempt with what was stored; returns a context manager in which the handler runs, in its
    own thread if it is a sync one. What it raises fails the attempt.
    begin: called with each transaction that Holdfast opens for a handler (`job.tx`, `job.prepare()`, `job.complete()`,
    atomic steps) and the context, to set what holds until its end; in an async handler, what it returns is awaited.
    names: all that a context may have; others are refused at each start, also over HTTP and on the command line.
    Raises: ContextDeclared.
    """
    if _ATTACHED in app.attached:
        raise ContextDeclared("add_context was called twice for one application")
    app.targets.context_names = names
    made = app.attached[_ATTACHED] = TravelContext(app, capture, enter, begin)
    app.use_context(made.capture_text, made.around)
    return made


class TravelContext:
    """The context of an application's jobs."""

    def __init__(
        self,
        app: Holdfast,
        capture: Callable[[], Context],
        enter: Callable[[Context], Entered] | None,
        begin: Begin | None,
    ) -> None:
        self._app = app
        self._capture = capture
        self._enter = enter
        self._begin = begin
        self._running: ContextVar[str | None] = ContextVar("holdfast_context", default=None)

    def current(self) -> dict[str, str]:
        """Return what a job would be started in now. Raises: ContextInvalid."""
        return decode_context(self.capture_text())

    def cycle(
        self,
        name: str,
        target: Target,
        *,
        per: Values,
        input: Any = None,
        value: str = "tenant",
        **options: Unpack[CycleOptions],
    ) -> None:
        """Start a job on a schedule for each of several tenants: one per tenant and slot, in a context with it.

        per: the tenants, or a function that returns them when a slot is due. value: their name in the context. The
        options are those of `app.cycle`. Raises: InvalidOption, and those of `app.cycle`.
        """
        check_per(per)
        encode_context({value: "tenant"})

        def start(run: CycleRun) -> None:
            start_per_value(self._app, run, target, input, value, per)

        self._app.cycle(name, **options)(start)

    def capture_text(self) -> str | None:
        """Return the same as it is stored, None if it is empty. Raises: ContextInvalid."""
        captured, running = self._capture(), self._running.get()
        if running is None and captured == {}:
            return None
        if running is not None and isinstance(captured, Mapping):
            captured = {**decode_context(running), **captured}
        text = encode_context(captured, self._app.targets.context_names)
        return None if text == "{}" else text

    def around(self, call: Callable[..., Any], is_async: bool) -> Callable[..., Any]:
        """Return a call of a job in its context; of a batch, a call for each context among its jobs."""
        one: Callable[..., Any] = self._call_async if is_async else self._call
        many: Callable[..., Any] = self._call_batch_async if is_async else self._call_batch
        running = self._running

        def restore(job: Job[Any] | list[Job[Any]]) -> Any:
            if isinstance(job, list):
                return many(call, job)
            if job.claimed.context is None and running.get() is None:
                # Most jobs of an application with few contexts: nothing is around them that would have to go.
                return call(job)
            return one(call, job, job)

        return restore

    def _call(self, call: Callable[..., Any], jobs: Any, job: Job[Any]) -> Any:
        """Call a sync handler in the context of a job, in the handler's thread."""
        if job.claimed.context is None:
            with self._run(job):
                return call(jobs)
        context = job.context
        manager = self._manager(context)
        if not isinstance(manager, AbstractContextManager):
            raise ContextNotEntered(f"{job.type} has a sync handler, and enter() is async")
        with self._run(job), manager:
            if self._begin is not None and context:
                begin = partial(self._begin_sync, self._begin, context)
                job.attempt_state.prepare_tx = begin
                if job.transaction is not None:
                    begin(job.transaction)
            return call(jobs)

    async def _call_async(self, call: Callable[..., Any], jobs: Any, job: Job[Any]) -> Any:
        """Call an async handler in the context of a job."""
        if job.claimed.context is None:
            with self._run(job):
                return await call(jobs)
        context = job.context
        async with AsyncExitStack() as stack:
            stack.enter_context(self._run(job))
            manager = self._manager(context)
            if isinstance(manager, AbstractContextManager):
                stack.enter_context(manager)
            else:
                await stack.enter_async_context(manager)
            if self._begin is not None and context:
                begin = partial(self._begin_async, self._begin, context)
                job.attempt_state.prepare_tx = begin
                if job.transaction is not None:
                    await begin(job.transaction)
            return await call(jobs)

    def _manager(self, context: Context) -> Entered:
        """Return the manager of a context; for a job without one, nothing is entered."""
        return nullcontext() if self._enter is None or not context else self._enter(context)

    @contextmanager
    def _run(self, job: Job[Any]) -> Iterator[None]:
        """Have what is started meanwhile inherit the context of a job."""
        token = self._running.set(job.claimed.context)
        try:
            yield
        finally:
            self._running.reset(token)

    @staticmethod
    def _begin_sync(begin: Begin, context: Context, tx: Any) -> None:
        begun = begin(tx, context)
        if isinstance(begun, Coroutine):
            begun.close()
            raise ContextNotEntered(
                "begin() is async, and the transaction of a sync handler is not"
            )

    @staticmethod
    async def _begin_async(begin: Begin, context: Context, tx: Any) -> None:
        begun = begin(tx, context)
        if isawaitable(begun):
            await begun

    def _call_batch(self, call: Callable[..., Any], jobs: list[Job[Any]]) -> Any:
        groups = _by_context(jobs)
        if len(groups) == 1:
            return self._call(call, jobs, jobs[0])
        results: dict[int, Any] = {}
        for group in groups:
            try:
                values = self._call(call, group, group[0])
            except Exception as error:
                values = [error] * len(group)
            results |= _by_job(group, values)
        return [results[id(job)] for job in jobs]

    async def _call_batch_async(self, call: Callable[..., Any], jobs: list[Job[Any]]) -> Any:
        groups = _by_context(jobs)
        if len(groups) == 1:
            return await self._call_async(call, jobs, jobs[0])
        results: dict[int, Any] = {}
        for group in groups:
            try:
                values = await self._call_async(call, group, group[0])
            except Exception as error:
                values = [error] * len(group)
            results |= _by_job(group, values)
        return [results[id(job)] for job in jobs]


def _by_context(jobs: Sequence[Job[Any]]) -> list[list[Job[Any]]]:
    """Return the jobs of a batch by their contexts, in the order of the first of each."""
    groups: dict[str | None, list[Job[Any]]] = {}
    for job in jobs:
        groups.setdefault(job.claimed.context, []).append(job)
    return list(groups.values())


def _by_job(jobs: Sequence[Job[Any]], values: Any) -> dict[int, Any]:
    """Return what a batch handler returned, by its jobs. Raises: OutputInvalid."""
    if values is None:
        values = [None] * len(jobs)
    if not isinstance(values, list | tuple) or len(values) != len(jobs):
        raise OutputInvalid(f"a batch handler returns a list of {len(jobs)}, or None")
    return {id(job): value for job, value in zip(jobs, values, strict=True)}
