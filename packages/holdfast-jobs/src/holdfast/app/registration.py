"""What an application registers: job types, subscriptions, cycles, middlewares, observers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime
from inspect import isroutine
from typing import TYPE_CHECKING, Any, ClassVar, TypedDict, TypeVar, Unpack

from holdfast.client.client import Outputs
from holdfast.core.codec import TypeCodec
from holdfast.core.cycle import CycleSpec, cycle_spec, resolve_cycle_options
from holdfast.core.duration import Duration, milliseconds
from holdfast.core.env_options import FromEnv
from holdfast.core.errors import DuplicateCycle, InvalidName, InvalidOption, nearest
from holdfast.core.instants import parse_since
from holdfast.core.registry import (
    Around,
    JobOptions,
    JobType,
    Registry,
    Target,
    TypeOptions,
    check_name,
    delivery_name,
    job_type_of,
)
from holdfast.core.signatures import at_least_one, check_call, check_kind
from holdfast.core.upgrades import check_version, upgrade_of
from holdfast.extensions import count_costs

if TYPE_CHECKING:
    from holdfast.client.client import SendSpans
    from holdfast.core.events import Event, Observer
    from holdfast.scheduler.cycle_run import WrapRun

H = TypeVar("H", bound=Callable[..., Any])
T = TypeVar("T")
M = TypeVar("M", bound=Callable[..., Any])
U = TypeVar("U", bound=Callable[[Any], Any])


class CycleOptions(TypedDict, total=False):
    """Options of a cycle, for `@app.cycle`: when it runs, and what happens to missed runs."""

    every: Duration | FromEnv[Duration | None] | None
    """Run at this interval, a second or more; either this or `cron` is required."""

    cron: str | FromEnv[str | None] | None
    """Run at the times of a cron expression with five fields, such as `17 3 * * *`."""

    tz: str | FromEnv[str | None] | None
    """The time zone of `cron`, such as `Europe/Madrid`; by default WORKER_TIME_ZONE, which is UTC unless set."""

    singleton: bool
    """Whether each scheduled time runs once across all replicas (the default) or, if False, on every replica."""

    missed: str | FromEnv[str]
    """Which runs missed while no worker was running are caught up: `"none"`, `"last"` (the default), or the
    latest n with `"all(n)"`."""

    jitter: Duration | FromEnv[Duration]
    """Delay each run by up to this long, by the same amount on all replicas; by default not at all."""

    timeout: Duration | FromEnv[Duration | None] | None
    """How long a run can take before it is asked to stop; by default WORKER_TICK_RUNNER_MAX_MS."""

    attempts: int | FromEnv[int]
    """How many times a scheduled time is attempted, with growing pauses; by default 3."""

    sharded: bool
    """Whether each shard of workers (WORKER_TICK_SHARD_INDEX, WORKER_TICK_SHARD_COUNT) runs it for its own part of
    the tenants; by default False."""

    max_items: int | FromEnv[int | None] | None
    """The item budget of one run, which `run.room` counts down from; by default
    WORKER_TICK_RUNNER_MAX_ITEMS."""


class Registration:
    """The registry of an application and the decorators that fill it."""

    registry_class: ClassVar[type[Registry]] = Registry

    def __init__(self) -> None:
        self.registry = self.registry_class()
        self.cycle_specs: dict[str, CycleSpec] = {}
        self._time_zone = "UTC"
        self._middlewares: list[Callable[..., Any]] = []
        self._observers: list[Observer] = []
        self._voice = Outputs()
        self._wrap_cycle_run: WrapRun | None = None
        self._around: Around | None = None

    def job(self, name: str, **options: Unpack[JobOptions]) -> Callable[[H], H]:
        """Register the decorated function as the handler of a job type.

        Raises: InvalidName, DuplicateJobType, HandlerInvalid, InvalidOption, ConfigError.
        """
        check_name(_not_a_function(name, 'job("order.charge")'))

        def register(handler: H) -> H:
            self._add(job_type_of(handler, name, _job_class(), options))
            return handler

        return register

    def on(
        self,
        event: str,
        *,
        name: str | None = None,
        since: datetime | str | None = None,
        keep: Duration | None = None,
        **options: Unpack[TypeOptions],
    ) -> Callable[[H], H]:
        """Subscribe the decorated function to an event, under its own name or the one given.

        since: when the subscription is new, also deliver the stored events from then on.
        keep: the minimum time events are kept, for handlers added later.
        Raises: InvalidName, DuplicateJobType, HandlerInvalid, InvalidOption, ConfigError.
        """
        check_name(_not_a_function(event, 'on("order.paid")'))
        begins = None if since is None else parse_since(since)
        keep_ms = None if keep is None else at_least_one("keep", milliseconds(keep))

        def register(handler: H) -> H:
            type_name = delivery_name(event, name or str(getattr(handler, "__name__", "")))
            made = job_type_of(handler, type_name, _job_class(), options, event)
            self._add(replace(made, since=begins, keep_ms=keep_ms))
            return handler

        return register

    def _add(self, made: JobType) -> None:
        if made.flow is not None and made.flow.cost is not None:
            count_costs()  # refuses what could not be counted
        self.registry.add(made)

    def upgrade(
        self, target: Target, *, from_: int | None = None, step: str | None = None
    ) -> Callable[[U], U]:
        """Register the decorated function as the upgrade of stored inputs from a version to the next one.

        target: a job type or event, by its name or handler. The function takes the old input, as its parameter is
        annotated, and returns the new one. With `step`, it takes a recorded result of that step which the code
        cannot read, and returns one that it can.
        Raises: UnknownJobType, InvalidOption, HandlerInvalid.
        """
        if (from_ is None) == (step is None):
            raise InvalidOption("an upgrade has either from_ or step", help="give one of them")

        def register(function: U) -> U:
            if step is None:
                self.registry.add_upgrade(target, from_, upgrade_of(function))
            else:
                self.registry.add_step_upgrade(target, step, upgrade_of(function))
            return function

        return register

    def declare(
        self,
        name: str,
        input: Any = Any,
        output: Any = Any,
        *,
        version: int = 1,
        sealed: bool = False,
    ) -> None:
        """Declare a job type or event that another service handles, with its input and output.

        version: that of the input, as its handler has it. sealed: whether its payloads are sealed.
        Raises: InvalidName, DuplicateJobType, HandlerInvalid, InvalidOption.
        """
        check_kind("sealed", sealed, (bool,))
        self.registry.add(
            JobType(
                name=check_name(name),
                handler=None,
                input=TypeCodec(input, "input"),
                output=TypeCodec(output, "output"),
                version=check_version(version),
                sealed=sealed,
            )
        )

    def cycle(self, name: str, **options: Unpack[CycleOptions]) -> Callable[[H], H]:
        """Run the decorated function on a schedule, one replica at a time, each slot once.

        Raises: InvalidName, InvalidSchedule, InvalidOption, ConfigError, DuplicateCycle.
        """
        _not_a_function(name, 'cycle("reminders", every="1h")')
        for each in options:
            if each not in CycleOptions.__optional_keys__:
                near = nearest(each, CycleOptions.__optional_keys__)
                raise InvalidOption(f"a cycle has no option {each!r}", help=near or None)
        given, variables = resolve_cycle_options(name, options)
        if given.get("cron") is not None and given.get("tz") is None:
            given["tz"] = self._time_zone

        def register(handler: H) -> H:
            if name in self.cycle_specs:
                raise DuplicateCycle(f"cycle {name} is already registered")
            self.cycle_specs[name] = cycle_spec(handler, name, **given, variables=variables)
            return handler

        return register

    def middleware(self, function: M) -> M:
        """Wrap every attempt in the decorated `async def(job, next)`; the first one registered is outermost.

        Raises: HandlerInvalid.
        """
        check_call(function, "job", "next")
        self._middlewares.append(function)
        return function

    def observe(self, observer: Observer) -> None:
        """Pass every event of this application's workers to an observer, after the commit.

        Events of jobs that are written on your connection follow where the driver reports the commit.
        Raises: InvalidOption.
        """
        if not callable(getattr(observer, "observe", None)):
            raise InvalidOption(
                f"{repr(observer)[:60]} is not an observer", help="give it an observe(event) method"
            )
        self._observers.append(observer)
        self._voice.observer = self.observer()

    def tell(self, events: Iterable[Event]) -> None:
        """Pass committed events to the observers."""
        observer = self._voice.observer
        if observer is not None:
            for each in events:
                observer.observe(each)

    def use_spans(self, send: Callable[[], SendSpans], tick: WrapRun) -> None:
        """Trace what starts jobs with the spans of `send`, ended after the commit, and runs of cycles with `tick`."""
        self._voice.begin_spans = send
        self._wrap_cycle_run = tick

    def use_context(self, capture: Callable[[], str | None], around: Around) -> None:
        """Store with new jobs what `capture` returns, and have `around` restore it for their handlers."""
        self._voice.capture = capture
        self._around = around

    def observer(self) -> Observer | None:
        """Return all observers as one; those that count get the names of all types and cycles."""
        from holdfast.observe import CompositeObserver

        types = [each.name for each in self.registry]
        for each in self._observers:
            expect = getattr(each, "expect", None)
            if expect is not None:
                expect(types, list(self.cycle_specs))
        return CompositeObserver(*self._observers) if self._observers else None


def _not_a_function(name: T, written: str) -> T:
    """Return a decorator's first argument. Raises: InvalidName when it is the function to be decorated."""
    if isroutine(name):
        raise InvalidName(
            f"the decorator of {name.__name__} needs parentheses and a name",
            help=f"write @app.{written}",
        )
    return name


def _job_class() -> type:
    """Return the class that handlers annotate; imported late, since producers do not need it."""
    from holdfast.worker.job import Job

    return Job
