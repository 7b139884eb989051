"""Holdfast: the application object, where all parts come together; its database and notifier open at first use."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

import msgspec

from holdfast.app.registration import Registration
from holdfast.app.seal import SEAL_KEYS, seal_of
from holdfast.client.chains import AsyncChains, Chains
from holdfast.client.client import Client, HintSender, TransactionScope
from holdfast.client.cycles import AsyncCycles, Cycles
from holdfast.client.enqueue import Producer
from holdfast.client.jobs import AsyncDeadLetters, AsyncJobs, DeadLetters, Jobs
from holdfast.client.start_options import check_key
from holdfast.client.start_targets import Targets
from holdfast.client.subscriptions import AsyncSubscriptions, Subscriptions
from holdfast.client.waiting import Waiting
from holdfast.client.workers import AsyncWorkers, Workers
from holdfast.commands.start import on_failed_types, subscribe_handlers, subscriptions_of
from holdfast.core.codec import SIZE_LIMIT
from holdfast.core.cycle import CycleSpec
from holdfast.core.duration import Duration
from holdfast.core.ids import bucket_of_key, in_bucket
from holdfast.core.instants import Instant
from holdfast.core.records import AppliedMigration
from holdfast.core.schemes import POSTGRES_SCHEMES
from holdfast.core.sealing import Sealer
from holdfast.extensions import rows
from holdfast.notify.base import Notifier
from holdfast.notify.encoding import channel_name
from holdfast.notify.factory import open_notifier
from holdfast.settings import load_some
from holdfast.storage.database import Database
from holdfast.storage.id_generator import new_id
from holdfast.storage.migrations import WAIT, log_wait
from holdfast.storage.sql_loader import check_identifier
from holdfast.storage.url import Address, Pooling, open_database, parse_url

if TYPE_CHECKING:
    from holdfast.scheduler.assembly import Assembly
    from holdfast.scheduler.background import EmbeddedWorker
    from holdfast.settings import Settings
    from holdfast.worker.options import WorkerOptions
    from holdfast.worker.worker import Worker


class Aio:
    """The async version of the application's resources."""

    def __init__(
        self,
        client: Client,
        targets: Targets,
        waiting: Waiting,
        migrate: Callable[[], list[AppliedMigration]],
        declared: Mapping[str, CycleSpec],
    ) -> None:
        self._migrate = migrate
        self.jobs = AsyncJobs(client)
        self.chains = AsyncChains(client, targets, waiting)
        self.dead_letters = AsyncDeadLetters(client)
        self.cycles = AsyncCycles(client, declared)
        self.workers = AsyncWorkers(client)
        self.subscriptions = AsyncSubscriptions(client)

    async def migrate(self) -> list[AppliedMigration]:
        """Bring the schema up to date as `Holdfast.migrate` does, in a thread: the loop stays free."""
        return await asyncio.to_thread(self._migrate)


class Holdfast(Registration, Producer):
    """An application: its job types, its database, and what can be done with both.

    Creating one opens no connection; the database is opened at its first use.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        schema: str | None = None,
        notifier: str | Notifier | None = None,
        hints: bool | None = None,
        open_types: bool = False,
        payload_limit: int = SIZE_LIMIT,
        seal: Sealer | None = None,
    ) -> None:
        """Take the database's URL and, on PostgreSQL, its schema; what is left out comes from the settings.

        notifier: as HOLDFAST_NOTIFIER, or a notifier. hints: whether new jobs send hints; workers poll
        in any case. open_types: whether types that are not registered may be started and continued
        with, because other services handle them. payload_limit: maximum bytes of an input. seal: what seals
        and opens payloads; left out, HOLDFAST_SEAL_KEYS.

        Raises: UnusableUrl, InvalidIdentifier, ConfigError, MissingExtra.
        """
        super().__init__()
        self.migrate_command: str | None = None
        """What creates and upgrades its tables where that is not `holdfast migrate`: errors name it."""
        named = notifier if isinstance(notifier, str) else None
        values = load_some(
            (*VARIABLES, "WORKER_TIME_ZONE", SEAL_KEYS),
            {
                "HOLDFAST_URL": url,
                "HOLDFAST_SCHEMA": schema,
                "HOLDFAST_NOTIFIER": named,
                "HOLDFAST_HINTS": hints,
            },
        )
        self._options = ResourceOptions.of(values, None if isinstance(notifier, str) else notifier)
        self._time_zone = str(values["WORKER_TIME_ZONE"])
        self.registry.sealer = seal_of(seal, cast("str | None", values[SEAL_KEYS]))
        self.attached: dict[str, Any] = {}
        """What extensions keep with this application, under names of their own."""
        self.leaves_chains: Callable[[], bool] = lambda: False
        """Whether retention leaves ended chains alone because an extension removes them."""
        self.after_migrate: list[Callable[[], None]] = []
        """What extensions register in the database when handlers are subscribed."""
        self._sender = HintSender(lambda: self.notifier)
        self.targets = Targets(self.registry, open_types, payload_limit)
        self._bind(str(values["HOLDFAST_URL"]), self._options)

    def bind(
        self,
        url: str,
        instant: Callable[[], Instant | None] = lambda: None,
        *,
        schema: str | None = None,
        database: Database | None = None,
    ) -> Callable[[], None]:
        """Use another database from now on and close the current one. For tests and tools.

        `instant` replaces the database's clock unless it returns None; `schema` replaces the PostgreSQL schema;
        `database` is used as it is, without hints. Returns what binds the previous one again.
        Raises: UnusableUrl, InvalidIdentifier.
        """
        parse_url(url)
        options = self._options
        if schema is not None:
            options = msgspec.structs.replace(options, schema=check_identifier(schema))
        if database is not None:
            options = msgspec.structs.replace(options, hints=False)  # nobody else can see it
        previous = partial(self._rebind, self._url, self._bound, self._instant)
        self._resources.close()
        self._bind(url, options, instant, database)
        return previous

    def _rebind(
        self, url: str, options: ResourceOptions, instant: Callable[[], Instant | None]
    ) -> None:
        self._resources.close()
        self._bind(url, options, instant)

    def _bind(
        self,
        url: str,
        options: ResourceOptions,
        instant: Callable[[], Instant | None] = lambda: None,
        database: Database | None = None,
    ) -> None:
        address = parse_url(url)
        self._url, self._bound, self._instant = url, options, instant
        self._resources = Resources(address, options, database)
        self._voice.sender = self._sender if options.hints else None
        self._voice.channel = options.channel(address)
        client = Client(
            address,
            options.schema,
            lambda: self.database,
            self._voice,
            instant,
            self._how_to_migrate,
            self.registry.sealer,
        )
        waiting = Waiting(lambda: self.database, (lambda: self.notifier) if options.hints else None)
        self._connect(client, self.targets)
        self.jobs = Jobs(client)
        self.chains = Chains(client, self.targets, waiting)
        self.dead_letters = DeadLetters(client)
        self.cycles = Cycles(client, self.cycle_specs)
        self.workers = Workers(client)
        self.subscriptions = Subscriptions(client)
        self.aio = Aio(client, self.targets, waiting, self.migrate, self.cycle_specs)

    def _how_to_migrate(self) -> str:
        """Name the command that migrates this database and no other."""
        if self.migrate_command is not None:
            return f"run `{self.migrate_command}`"
        name = _find_name(self)
        target = f"--app {name}" if name else f"--url {self.database.url}"
        return f"run `holdfast migrate {target}`, or app.migrate()"

    @property
    def url(self) -> str:
        """The database's URL, password included."""
        return self._url

    @property
    def schema(self) -> str:
        """The PostgreSQL schema of Holdfast's tables."""
        return self._bound.schema

    @property
    def database(self) -> Database:
        """The database, opened at its first use. Raises: MissingExtra."""
        return self._resources.database

    def instant(self) -> Instant | None:
        """Return the instant that replaces the database's clock, in tests; None otherwise."""
        return self._instant()

    @property
    def notifier(self) -> Notifier:
        """The notifier, created at its first use. Raises: ConfigError, MissingExtra."""
        return self._resources.notifier

    @property
    def sends_hints(self) -> bool:
        """Whether hints are sent and heard at all."""
        return self._bound.hints

    def worker(
        self, settings: Settings | None = None, *, enabled: bool | None = None
    ) -> EmbeddedWorker:
        """Return a worker for `async with` inside a web application; off unless OUTBOX_WORKER_ENABLED=true.

        `enabled` overrides that setting. Raises: ConfigError for settings that do not fit together.
        """
        from holdfast.scheduler.background import EmbeddedWorker
        from holdfast.settings import load_settings

        settings = settings or load_settings({"OUTBOX_WORKER_ENABLED": enabled})
        return EmbeddedWorker(
            settings.embedded.enabled if enabled is None else enabled,
            self.assembly(settings),
            is_default=enabled is None and settings.origin("OUTBOX_WORKER_ENABLED") == "default",
        )

    def default_settings(self) -> dict[str, object]:
        """What settings of `holdfast worker` are where neither an option nor the environment gives them."""
        return {}

    def make_worker(
        self,
        options: WorkerOptions | None = None,
        *,
        types: Iterable[str] | None = None,
        database: Database | None = None,
        threads: Executor | None = None,
    ) -> Worker:
        """Create a bare worker for this application's job types, or some of them: no cycles, no retention.

        `threads` runs the sync handlers instead of threads of its own.
        Raises: UnknownJobType, HandlerInvalid, and HF017 to HF019 for timings that do not fit.
        """
        from holdfast.worker.worker import Worker

        self.registry.check()
        names = [each.name for each in self.registry] if types is None else list(types)
        return Worker(
            database or self.database,
            {name: replace(self.registry.get(name), around=self._around) for name in names},
            options,
            notifier=self.notifier if self._bound.hints else None,
            observer=self.observer(),
            middlewares=self._middlewares,
            targets=self.targets,
            threads=threads,
        )

    def assembly(self, settings: Settings, types: Iterable[str] | None = None) -> Assembly:
        """Return everything a tick or a background mode is made of; `types` limits what its worker runs."""
        from holdfast.scheduler.assembly import Assembly
        from holdfast.scheduler.cycle_run import wrap_nothing

        own = None if types is None else list(types)
        return Assembly(
            database=self.database,
            settings=settings,
            make_worker=lambda options, some: self.make_worker(
                options, types=own if some is None else some
            ),
            cycles=tuple(self.cycle_specs.values()),
            wrap_run=self._wrap_cycle_run or wrap_nothing,
            notifier=self.notifier if self._bound.hints else None,
            observer=self.observer(),
            leaves_chains=self.leaves_chains(),
            runners=tuple(
                runner for make in rows("runners") if (runner := make(self, settings)) is not None
            ),
        )

    def transaction(self) -> TransactionScope:
        """Return one of Holdfast's own transactions, for `with` or `async with`."""
        return TransactionScope(lambda: self.database)

    def new_id(self, key: str | None = None) -> UUID:
        """Return an id for a new chain: if you keep it, `start(…, id=…)` can be repeated safely.

        With the `key` that you start it with, it has the key's bucket, as ids that Holdfast makes have.
        """
        made, checked = new_id(), check_key(key)
        return UUID(made if checked is None else in_bucket(made, bucket_of_key(checked)))

    def batch_hints(self) -> AbstractContextManager[None]:
        """Return a context manager for many transactions; their hints are sent once, at its end."""
        return self._sender.batch()

    def migrate(
        self, *, wait: Duration = WAIT, tell: Callable[[str], None] = log_wait
    ) -> list[AppliedMigration]:
        """Bring the schema up to date and subscribe this application's handlers to their events.

        It waits for other transactions for `wait` in all, and calls `tell` with whom it waits for; by default, that is
        logged. Raises: MigrationBlocked.
        """
        applied = self.database.migrate(wait, tell)
        self.subscribe_handlers()
        return applied

    def subscribe_handlers(self) -> None:
        """Subscribe this application's handlers to their events; `migrate` and workers do it too."""
        subscriptions, store = subscriptions_of(self.registry), self.database.store
        names = on_failed_types(self.registry)
        if names:
            self.database.run(store.on_failed.declare(names))
        if subscriptions:
            deliveries = self.database.run(subscribe_handlers(store, subscriptions))
            hints = [hint for each in deliveries for hint in each.hints()]
            if hints and self._bound.hints:
                self._sender.send(hints)
        for register in self.after_migrate:
            register()

    def close(self) -> None:
        """Close all connections; the next use opens them again."""
        self._resources.close()

    async def aclose(self) -> None:
        """Close all connections, those of the running loop included."""
        await self._resources.aclose()


VARIABLES = (
    "HOLDFAST_URL",
    "HOLDFAST_SCHEMA",
    "HOLDFAST_NOTIFIER",
    "HOLDFAST_LISTEN_URL",
    "HOLDFAST_HINTS",
    "HOLDFAST_CONNECTIONS",
    "HOLDFAST_PREPARE",
    "HOLDFAST_PREPARE_POOLED",
    "HOLDFAST_SYNCHRONOUS",
    "HOLDFAST_ENVIRONMENT",
)
"""The settings that say how a database and a notifier are opened."""


class ResourceOptions(msgspec.Struct, frozen=True):
    """How an application opens what it needs: arguments before environment before file."""

    schema: str
    notifier: str | Notifier | None
    listen_url: str | None
    hints: bool
    pooling: Pooling
    environment: str | None

    @classmethod
    def of(cls, values: Mapping[str, Any], notifier: Notifier | None) -> ResourceOptions:
        """Return the options; a notifier that is passed in overrides the settings. Raises: InvalidIdentifier."""
        return cls(
            schema=check_identifier(values["HOLDFAST_SCHEMA"]),
            notifier=notifier or values["HOLDFAST_NOTIFIER"],
            listen_url=values["HOLDFAST_LISTEN_URL"],
            hints=values["HOLDFAST_HINTS"],
            pooling=Pooling(
                connections=values["HOLDFAST_CONNECTIONS"],
                prepare=values["HOLDFAST_PREPARE"],
                prepare_pooled=values["HOLDFAST_PREPARE_POOLED"],
                synchronous=values["HOLDFAST_SYNCHRONOUS"],
            ),
            environment=values["HOLDFAST_ENVIRONMENT"],
        )

    def channel(self, address: Address) -> str | None:
        """Return the channel for hints inside a raw connection's transaction, None if hints take another way."""
        if not self.hints or address.dialect != "postgresql":
            return None
        if self.notifier is None or (
            isinstance(self.notifier, str) and self.notifier.partition("://")[0] in POSTGRES_SCHEMES
        ):
            return channel_name(self.schema)
        return None


class Resources:
    """The database and the notifier at one address."""

    def __init__(
        self, address: Address, options: ResourceOptions, database: Database | None = None
    ) -> None:
        self._address = address
        self._options = options
        self._opening = RLock()
        self._database = database
        self._notifier: Notifier | None = None

    @property
    def database(self) -> Database:
        """The database, opened at its first use. Raises: MissingExtra."""
        with self._opening:
            if self._database is None:
                options = self._options
                self._database = open_database(
                    self._address, options.schema, options.pooling, options.environment
                )
            return self._database

    @property
    def notifier(self) -> Notifier:
        """The notifier, created at its first use. Raises: ConfigError, MissingExtra."""
        with self._opening:
            if self._notifier is None:
                self._notifier = self._make_notifier(self._options.notifier)
            return self._notifier

    def _make_notifier(self, wanted: str | Notifier | None) -> Notifier:
        if wanted is not None and not isinstance(wanted, str):
            return wanted
        return open_notifier(
            wanted,
            database_url=self._address.url,
            schema=self._options.schema,
            listen_url=self._options.listen_url,
        )

    def close(self) -> None:
        """Close all connections; the next use opens them again."""
        database, notifier = self._take()
        if notifier is not None:
            notifier.close()
        if database is not None:
            database.close()

    async def aclose(self) -> None:
        """Close all connections, those of the running loop included."""
        database, notifier = self._take()
        if notifier is not None:
            await asyncio.to_thread(notifier.close)
        if database is not None:
            await database.close_async()

    def _take(self) -> tuple[Database | None, Notifier | None]:
        with self._opening:
            database, self._database = self._database, None
            notifier, self._notifier = self._notifier, None
        return database, notifier


def _find_name(app: Holdfast) -> str | None:
    """Find the module and attribute by which commands reach an application; only errors ask."""
    for name, module in list(sys.modules.items()):
        for attribute, value in list(getattr(module, "__dict__", {}).items()):
            if value is app and name != "__main__":
                return f"{name}:{attribute}"
            if value is app and (file := getattr(module, "__file__", None)):
                return f"{Path(file).stem}:{attribute}"
    return None
