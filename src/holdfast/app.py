"""Holdfast: the registry of job types and handlers, and the one place where the parts are put together."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractContextManager
from functools import partial
from threading import RLock
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack

from holdfast.client.chains import AsyncChains, Chains
from holdfast.client.client import Client, Voice
from holdfast.client.dead_letters import AsyncDeadLetters, DeadLetters
from holdfast.client.hints import HintSender
from holdfast.client.jobs import AsyncJobs, Jobs
from holdfast.client.opening import open_database
from holdfast.client.producer import Producer
from holdfast.client.targets import Targets
from holdfast.client.transaction import TransactionScope
from holdfast.client.url import Address, parse_url
from holdfast.client.waiting import Waiting
from holdfast.core.codec import TypeCodec
from holdfast.core.cycle import CycleSpec, cycle_spec
from holdfast.core.duration import Duration
from holdfast.core.errors import DuplicateCycle
from holdfast.core.jobtype import JobType
from holdfast.core.json_text import SIZE_LIMIT
from holdfast.core.model import Instant
from holdfast.core.registry import (
    Registry,
    TypeOptions,
    check_name,
    delivery_name,
    job_type_of,
)
from holdfast.core.retry import JOB_RETRY
from holdfast.notify.open import POSTGRES_SCHEMES, open_notifier
from holdfast.notify.port import Notifier
from holdfast.notify.wire import channel_name
from holdfast.ops.publish import subscribe_handlers
from holdfast.storage.database import Database
from holdfast.storage.identifiers import new_id
from holdfast.storage.records import AppliedMigration, Subscription
from holdfast.storage.sqlfile import DEFAULT_SCHEMA, check_identifier

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

    from holdfast.core.events import Observer
    from holdfast.runtime.assembly import Assembly
    from holdfast.runtime.embedded import EmbeddedWorker
    from holdfast.settings import Settings
    from holdfast.worker.options import WorkerOptions
    from holdfast.worker.worker import Worker

H = TypeVar("H", bound=Callable[..., Any])
M = TypeVar("M", bound=Callable[..., Any])

DEFAULT_URL = "sqlite:///holdfast.db"


class CycleOptions(TypedDict, total=False):
    """When a cycle runs, and what becomes of slots that were missed."""

    every: Duration | None
    cron: str | None
    tz: str | None
    singleton: bool
    missed: str
    jitter: Duration
    timeout: Duration | None
    attempts: int
    sharded: bool


class Aio:
    """The nouns in the other colour: the same operations, awaited."""

    def __init__(self, client: Client, targets: Targets, waiting: Waiting) -> None:
        self.jobs = AsyncJobs(client)
        self.chains = AsyncChains(client, targets, waiting)
        self.dead_letters = AsyncDeadLetters(client)


class Holdfast(Producer):
    """An application: its job types, its database, and what can be done with both.

    Making one connects to nothing; the database is opened at its first use.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        schema: str | None = None,
        notifier: str | Notifier | None = None,
        hints: bool = True,
        open_types: bool = False,
        payload_limit: int = SIZE_LIMIT,
    ) -> None:
        """Take the database's URL (HOLDFAST_URL, else SQLite) and, on PostgreSQL, its schema.

        notifier: as HOLDFAST_NOTIFIER, or one that is ready. hints: whether workers are told of new
        jobs at all; they poll in any case. open_types: whether names that are not registered may be
        started, because other services handle them. payload_limit: bytes of an input.

        Raises: UnusableUrl, InvalidIdentifier.
        """
        self.registry = Registry()
        self.schema = check_identifier(
            schema or os.environ.get("HOLDFAST_SCHEMA") or DEFAULT_SCHEMA
        )
        self._notifier_choice = notifier or os.environ.get("HOLDFAST_NOTIFIER")
        self._hints = hints
        self._opening = RLock()
        self._database: Database | None = None
        self._notifier: Notifier | None = None
        self._sender = HintSender(lambda: self.notifier)
        self._voice = Voice()
        self._middlewares: list[Callable[..., Any]] = []
        self._observers: list[Observer] = []
        self.cycle_specs: dict[str, CycleSpec] = {}
        self._targets = Targets(self.registry, open_types, payload_limit)
        self.bind(url or os.environ.get("HOLDFAST_URL") or DEFAULT_URL)

    def bind(self, url: str, instant: Callable[[], Instant | None] = lambda: None) -> None:
        """Use another database from now on; what was open is closed. For tests and tools. Raises: UnusableUrl.

        `instant` replaces the database's clock where it does not answer None.
        """
        address = parse_url(url)
        self.close()
        self._address = address
        self._instant = instant
        if self._hints:
            self._voice.sender = self._sender
            self._voice.channel = _channel(address, self.schema, self._notifier_choice)
        client = Client(address, self.schema, lambda: self.database, self._voice, instant)
        waiting = Waiting(lambda: self.database, (lambda: self.notifier) if self._hints else None)
        super().__init__(client, self._targets)
        self.jobs = Jobs(client)
        self.chains = Chains(client, self._targets, waiting)
        self.dead_letters = DeadLetters(client)
        self.aio = Aio(client, self._targets, waiting)

    @property
    def database(self) -> Database:
        """The database, opened at its first use. Raises: MissingExtra."""
        with self._opening:
            if self._database is None:
                self._database = open_database(self._address, self.schema)
            return self._database

    @property
    def notifier(self) -> Notifier:
        """What sends and receives hints, made at its first use. Raises: ConfigError, MissingExtra."""
        with self._opening:
            if self._notifier is None:
                self._notifier = self._made_notifier(self._notifier_choice)
            return self._notifier

    def _made_notifier(self, chosen: str | Notifier | None) -> Notifier:
        if chosen is not None and not isinstance(chosen, str):
            return chosen
        return open_notifier(
            chosen,
            database_url=self._address.url,
            schema=self.schema,
            listen_url=os.environ.get("HOLDFAST_LISTEN_URL"),
        )

    def job(self, name: str, **options: Unpack[TypeOptions]) -> Callable[[H], H]:
        """Register the decorated function as the handler of a job type.

        Raises: InvalidName, DuplicateJobType, HandlerInvalid, InvalidOption.
        """
        check_name(name)

        def register(handler: H) -> H:
            self.registry.add(job_type_of(handler, name, _job_class(), options))
            return handler

        return register

    def on(
        self, event: str, *, name: str | None = None, **options: Unpack[TypeOptions]
    ) -> Callable[[H], H]:
        """Subscribe the decorated function to an event, under its own name or the one given.

        Raises: InvalidName, DuplicateJobType, HandlerInvalid, InvalidOption.
        """
        check_name(event)

        def register(handler: H) -> H:
            type_name = delivery_name(event, name or str(getattr(handler, "__name__", "")))
            self.registry.add(job_type_of(handler, type_name, _job_class(), options, event))
            return handler

        return register

    def declare(self, name: str, input: Any = Any, output: Any = Any) -> None:
        """Say that a job type or event exists whose handler is elsewhere, and what it exchanges.

        Raises: InvalidName, DuplicateJobType, HandlerInvalid.
        """
        self.registry.add(
            JobType(
                name=check_name(name),
                handler=None,
                input=TypeCodec(input, "input"),
                output=TypeCodec(output, "output"),
                retry=JOB_RETRY,
            )
        )

    def middleware(self, function: M) -> M:
        """Wrap every attempt in the decorated `async def(job, next)`; the first one registered is outermost."""
        self._middlewares.append(function)
        return function

    def observe(self, observer: Observer) -> None:
        """Tell an observer everything that happens in this application's workers, after commit.

        Of jobs that are written on the caller's connection it hears where the library tells of the commit.
        """
        self._observers.append(observer)
        self._voice.observer = self._observer()

    def use_opentelemetry(
        self,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
    ) -> None:
        """Trace the sending of jobs and every attempt, linked to it, and keep the metrics; by default globally.

        Raises: MissingExtra.
        """
        from holdfast.observe.otel import OtelObserver
        from holdfast.observe.spans import SendSpan, attempt_span

        async def traced(job: Any, next: Callable[[], Awaitable[Any]]) -> Any:
            first = job[0] if isinstance(job, list) else job
            async with attempt_span(
                first.type, str(first.id), first.trace, tracer_provider=tracer_provider
            ):
                return await next()

        self._voice.begin_span = partial(
            SendSpan, tracer_provider=tracer_provider, meter_provider=meter_provider
        )
        self.middleware(traced)
        self.observe(OtelObserver(meter_provider))

    def cycle(self, name: str, **options: Unpack[CycleOptions]) -> Callable[[H], H]:
        """Run the decorated function on a schedule, one replica at a time, each slot once.

        Raises: InvalidName, InvalidSchedule, InvalidOption, DuplicateCycle.
        """

        def register(handler: H) -> H:
            if name in self.cycle_specs:
                raise DuplicateCycle(f"there is a cycle {name} already")
            self.cycle_specs[name] = cycle_spec(handler, name, **options)
            return handler

        return register

    def worker(self, settings: Settings | None = None) -> EmbeddedWorker:
        """Return a worker for `async with` inside a web application; off unless OUTBOX_WORKER_ENABLED=true.

        Raises: ConfigError for settings that do not fit together.
        """
        from holdfast.runtime.embedded import EmbeddedWorker
        from holdfast.settings import load_settings

        settings = settings or load_settings()
        assembly = self.assembly(settings)
        return EmbeddedWorker(settings.embedded.enabled, lambda: assembly.background(True))

    def make_worker(
        self,
        options: WorkerOptions | None = None,
        *,
        types: Iterable[str] | None = None,
        database: Database | None = None,
    ) -> Worker:
        """Make a bare worker for this application's job types, or for some of them: no cycles, no retention.

        Raises: UnknownJobType, HandlerInvalid, and HF017 to HF019 for timings that do not fit.
        """
        from holdfast.worker.worker import Worker

        self.registry.check()
        chosen = [each.name for each in self.registry] if types is None else list(types)
        return Worker(
            database or self.database,
            {name: self.registry.get(name) for name in chosen},
            options,
            notifier=self.notifier if self._hints else None,
            observer=self._observer(),
            middlewares=self._middlewares,
            type_of=self.registry.find,
        )

    def assembly(self, settings: Settings, types: Iterable[str] | None = None) -> Assembly:
        """Bring everything a tick or a background mode is made of; `types` narrows what its worker runs."""
        from holdfast.runtime.assembly import Assembly

        own = None if types is None else list(types)
        return Assembly(
            database=self.database,
            settings=settings,
            make_worker=lambda options, some: self.make_worker(
                options, types=own if some is None else some
            ),
            cycles=tuple(self.cycle_specs.values()),
            notifier=self.notifier if self._hints else None,
            observer=self._observer(),
        )

    def _observer(self) -> Observer | None:
        from holdfast.observe.fan import Observers

        return Observers(*self._observers) if self._observers else None

    def transaction(self) -> TransactionScope:
        """Return a transaction of Holdfast's own, for `with` or `async with`."""
        return TransactionScope(lambda: self.database)

    def batch_hints(self) -> AbstractContextManager[None]:
        """Return a block in which many transactions commit and workers are told once, at its end."""
        return self._sender.batch()

    def migrate(self) -> list[AppliedMigration]:
        """Bring the schema up to date and subscribe this application's handlers to their events."""
        applied = self.database.migrate()
        subscriptions = [
            Subscription(each.event, each.name.removeprefix(f"{each.event}/"))
            for each in self.registry
            if each.event is not None
        ]
        if subscriptions:
            store = self.database.store
            self.database.run(subscribe_handlers(store, subscriptions, new_id))
        return applied

    def close(self) -> None:
        """Close what was opened; another use opens it again."""
        with self._opening:
            database, self._database = self._database, None
            notifier, self._notifier = self._notifier, None
        if notifier is not None:
            notifier.close()
        if database is not None:
            database.close()

    async def aclose(self) -> None:
        """Close what was opened, connections of the running loop included."""
        import asyncio

        with self._opening:
            database, self._database = self._database, None
            notifier, self._notifier = self._notifier, None
        if notifier is not None:
            await asyncio.to_thread(notifier.close)
        if database is not None:
            await database.close_async()


def _job_class() -> type:
    """Return the class that handlers annotate; processes that only produce need not import it."""
    from holdfast.worker.job import Job

    return Job


def _channel(address: Address, schema: str, notifier: str | Notifier | None) -> str | None:
    """Return where a raw connection sends its hint within the transaction, if anybody hears it there."""
    if address.dialect != "postgresql":
        return None
    if notifier is None or (
        isinstance(notifier, str) and notifier.partition("://")[0] in POSTGRES_SCHEMES
    ):
        return channel_name(schema)
    return None
