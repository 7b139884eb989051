"""The application: tasks and settings as Celery has them, on a Holdfast application that runs them."""

from __future__ import annotations

import importlib
import importlib.util
import threading
from collections import UserDict
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, overload

import msgspec

from holdfast.app import Holdfast
from holdfast.core.errors import DuplicateCycle, DuplicateJobType, InvalidOption
from holdfast.core.registry import JobType, Registry, Target
from holdfast.core.signatures import check_call, check_kind, is_async
from holdfast.notify.base import Notifier
from holdfast.observe import CompositeObserver
from holdfast.scheduler.cycle_run import CycleRun
from holdfast.storage.database import Database
from holdfast.worker.job import Job
from holdfast_celery.attempts import TaskRunner, collect_results
from holdfast_celery.calls import (
    COLLECT,
    GROUP,
    LEAST_URGENT,
    CallOptions,
    TaskCall,
    check_celery_priority,
    read_options,
)
from holdfast_celery.canvas import TaskSignature, start_steps
from holdfast_celery.control import WorkerControl
from holdfast_celery.coverage import (
    UnsupportedAttribute,
    check_always_so,
    check_names,
    find_feature,
    modern_setting,
    refuse,
    refuse_attributes,
)
from holdfast_celery.django_transaction import settings_are_being_read
from holdfast_celery.errors import CeleryUnsupported
from holdfast_celery.messages import send_before_publish
from holdfast_celery.queues import DEFAULT_QUEUE, Routes, read_queues, type_name
from holdfast_celery.result import AsyncResult
from holdfast_celery.revocation import RevokedTasks
from holdfast_celery.schedules import BeatEntry, beat_entry, cycle_name, cycle_timing
from holdfast_celery.scope import announce, share, using_transaction
from holdfast_celery.signals import WorkerSignals, begin_worker, import_modules, task_revoked
from holdfast_celery.tasks import CeleryTask, check_base, make_task, mapping_tasks

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from holdfast.worker.options import WorkerOptions
    from holdfast.worker.worker import Worker

_NO_DATABASE = "sqlite:///:memory:"
"""Where an application leads until its database is known."""
M = TypeVar("M", bound=Callable[..., Any])
_Decorate = Callable[[Callable[..., Any]], CeleryTask]


class TaskRegistry(Registry):
    """Job types that are completed at the first look: task modules import the application, so it cannot import them."""

    def __init__(self) -> None:
        super().__init__()
        self.load: Callable[[], None] = lambda: None

    def __iter__(self) -> Iterator[JobType]:
        self.load()
        return super().__iter__()

    def __len__(self) -> int:
        self.load()
        return super().__len__()

    def __contains__(self, name: object) -> bool:
        self.load()
        return super().__contains__(name)

    def find(self, target: Target) -> JobType | None:
        """Return the type of a name or handler, None when it is not registered here."""
        self.load()
        return super().find(target)


class Celery(Holdfast):
    """A Holdfast application with Celery's decorators, settings and canvas.

    Everything of `Holdfast` works as well, so that tasks can become jobs one by one.
    """

    registry_class: ClassVar[type[Registry]] = TaskRegistry
    runner_class: ClassVar[type[TaskRunner]] = TaskRunner

    def __init__(
        self,
        main: str | None = None,
        *,
        url: str | Callable[[], str] | None = None,
        include: Iterable[str] = (),
        highest_priority: int = 0,
        schema: str | None = None,
        notifier: str | Notifier | None = None,
        hints: bool | None = None,
        **refused: Any,
    ) -> None:
        """Take the name, and what `Holdfast` takes; what is left out comes from the settings.

        url: also a function that returns it, such as Django's `database_url`. include: modules with tasks, imported
        before tasks are looked up. highest_priority: 0 as with Redis, 9 as with RabbitMQ. Raises: CeleryUnsupported
        for Celery's other arguments, and what `Holdfast` raises.
        """
        check_names("application argument", refused, f"Celery({main!r})")
        if highest_priority not in (0, LEAST_URGENT):
            raise InvalidOption(f"highest_priority={highest_priority!r} is neither 0 nor 9")
        known = _NO_DATABASE if callable(url) else url
        super().__init__(known, schema=schema, notifier=notifier, hints=hints)
        self._deferred: list[Callable[[], object]] = []
        self.main = main
        self.tasks: dict[str, CeleryTask] = {}
        self._task_class: type[CeleryTask] = CeleryTask
        self._mapping = mapping_tasks(self)
        self.conf = CeleryConf(self)
        self.control = WorkerControl(self)
        self.loader = TaskLoader(self)
        self.on_after_configure = self.on_after_finalize = Connections(self)
        self._highest_priority = highest_priority
        self._modules = list(include)
        self._beat: dict[str, BeatEntry] = {}
        self._loading = threading.RLock()
        self._is_loaded = self._is_loading = False
        assert isinstance(self.registry, TaskRegistry)
        self.registry.load = self.load_tasks
        self.sync_middlewares: list[Callable[..., Any]] = []
        # `observe` would look the tasks up, whose modules import this application.
        self._observers += [WorkerSignals(self), RevokedTasks(self)]
        if task_revoked.has_listeners():
            self.observe_cancellations()
        if callable(url):
            self._once_settings_are_read(partial(self._bind_to, url))
        announce(self)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if find_feature("application attribute", name) is None:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            raise UnsupportedAttribute.of("application attribute", name)

    @property
    def url(self) -> str:
        """The database's URL, password included."""
        self._settle()
        return super().url

    @property
    def database(self) -> Database:
        """The database, opened at its first use. Raises: MissingExtra."""
        self._settle()
        return super().database

    def _bind_to(self, url: Callable[[], str]) -> None:
        self.bind(url())

    def _once_settings_are_read(self, action: Callable[[], object]) -> None:
        """Do what needs Django's settings now, or at the first use of the application if they are being read just now.

        A project's package imports its application, and its settings may import something of the package.
        """
        if settings_are_being_read():
            self._deferred.append(action)
        else:
            action()

    def _settle(self) -> None:
        while self._deferred and not settings_are_being_read():
            self._deferred.pop(0)()

    @property
    def Task(self) -> type[CeleryTask]:  # noqa: N802
        """The class of tasks without `base`, and what base classes are derived from.

        One that is set after tasks were looked up is that of later tasks, as in Celery.
        """
        return self._task_class

    @Task.setter
    def Task(self, base: type[CeleryTask]) -> None:  # noqa: N802
        check_base(base, "app.Task")
        self._task_class = base
        for each in () if self._is_loaded else self.tasks.values():
            each.rebase(base)

    @overload
    def task(self, function: Callable[..., Any], /) -> CeleryTask: ...
    @overload
    def task(self, /, **options: Any) -> _Decorate: ...
    def task(self, function: Any = None, /, **options: Any) -> Any:
        """Make the decorated function a task. Raises: CeleryUnsupported, InvalidName, DuplicateJobType."""

        def decorate(decorated: Callable[..., Any]) -> CeleryTask:
            made = make_task(decorated, options, main=self.main, app=self)
            self.adopt(made)
            return made

        return decorate if function is None else decorate(function)

    def middleware(self, function: M) -> M:
        """Wrap every attempt: an `async def(job, next)` on the loop, a `def(job, next)` those of tasks in their thread.

        The first one registered is outermost; async ones are around all others. Raises: HandlerInvalid.
        """
        if is_async(function):
            return super().middleware(function)
        check_call(function, "job", "next")
        self.sync_middlewares.append(function)
        return function

    def make_worker(
        self,
        options: WorkerOptions | None = None,
        *,
        types: Iterable[str] | None = None,
        database: Database | None = None,
        threads: Executor | None = None,
    ) -> Worker:
        """Create a bare worker, after the signals that come before one. Raises: as that of `Holdfast`."""
        worker = super().make_worker(options, types=types, database=database, threads=threads)
        begin_worker(self)
        return worker

    def default_settings(self) -> dict[str, object]:
        """The slots of a worker are `worker_concurrency` where nothing else says how many. Raises: InvalidOption."""
        self.load_tasks()
        number = str(self.conf.worker_concurrency or "").strip()
        if number and not number.isdecimal():
            raise InvalidOption(f"worker_concurrency={number[:60]!r} is no number")
        return {"HOLDFAST_SLOTS": int(number)} if number else {}

    def observe_cancellations(self) -> None:
        """Have this process tell its observers of what it writes, too, and not only of what its workers do."""
        self._voice.observer = CompositeObserver(*self._observers)

    def adopt(self, task: CeleryTask) -> None:
        """Take in a task. Raises: DuplicateJobType."""
        if task.name in self.tasks:
            raise DuplicateJobType(f"task {task.name} is already registered")
        self.tasks[task.name] = task
        if self._task_class is not CeleryTask:
            task.rebase(self._task_class)
        if self._is_loaded:
            # One in a queue that is new brings that queue for all.
            everything = [*self._mapping.values(), *self.tasks.values()]
            for each in everything if task.options.defaults.queue else [task]:
                self._register(each)

    def task_of(self, name: str) -> CeleryTask:
        """Return a task by its name. Raises: UnknownJobType."""
        self.registry.get(name)
        found = self.tasks.get(name) or self._mapping.get(name)
        if found is None:
            raise CeleryUnsupported(f"{name} is a job type, not a task", help="use app.start")
        return found

    def send_task(
        self,
        name: str,
        args: Iterable[Any] | None = (),
        kwargs: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> AsyncResult:
        """Start a task by its name. Raises: UnknownJobType, and what `apply_async` raises."""
        found: AsyncResult = self.signature(name, args, kwargs).apply_async(**options)
        return found

    def signature(
        self,
        name: str,
        args: Iterable[Any] | None = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        immutable: bool = False,
        **options: Any,
    ) -> TaskSignature:
        """Return the signature of a task by its name. Raises: CeleryUnsupported."""
        return TaskSignature(name, args, kwargs, options, immutable=immutable, app=self)

    def AsyncResult(self, task_id: str) -> AsyncResult:  # noqa: N802
        """Return a result by its id."""
        return AsyncResult(task_id, self)

    def using(self, tx: Any) -> AbstractContextManager[None]:
        """Start what the block starts in your transaction: it commits or rolls back with your rows.

        Raises: UnsupportedConnection, also for an async connection.
        """
        return using_transaction(self, tx)

    def autodiscover_tasks(
        self,
        packages: Iterable[str] | Callable[[], Iterable[str]] | None = None,
        related_name: str | None = "tasks",
        force: bool = False,
    ) -> None:
        """Import the module of this name of each package, where there is one, before tasks are looked up.

        packages: names, or a function that returns them then; without any they are Django's INSTALLED_APPS.
        related_name: None imports the packages themselves. force: look tasks up now.
        """

        def discover(sender: Celery) -> None:
            named = packages() if callable(packages) else packages
            sender._modules += [f"?{each}.{related_name or ''}" for each in named or ["*"]]

        self.on_after_configure.connect(discover)
        if force:
            self.load_tasks()

    def config_from_object(
        self, source: Any, namespace: str = "", ignore: Iterable[str] = ()
    ) -> None:
        """Read settings from an object, a mapping, or a module by its name ("django.conf:settings").

        Those of brokers and result backends are not read. namespace: the prefix of their names in capitals. ignore:
        more of Celery's own while it still runs. Raises: CeleryUnsupported for others that are not covered, all in one.
        """
        ignored = set(ignore)

        def read() -> None:
            found = read_settings(source, namespace)
            self.conf.update({name: value for name, value in found.items() if name not in ignored})

        self._once_settings_are_read(read)

    def add_periodic_task(
        self,
        schedule: Any,
        sig: Any,
        args: Iterable[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        name: str | None = None,
        **options: Any,
    ) -> str:
        """Start a task on a schedule; return the entry's name, by which another one replaces it.

        Raises: DuplicateCycle, InvalidSchedule, CeleryUnsupported.
        """
        full = (sig if isinstance(sig, TaskSignature) else sig.s()).clone(args, kwargs)
        entry = {
            "task": full.task,
            "schedule": schedule,
            "args": full.args,
            "kwargs": full.kwargs,
            "options": full.options | options,
        }
        key = name or repr(full)
        if self._beat.pop(cycle_name(key), None) is not None:
            self.cycle_specs.pop(cycle_name(key))
        self._add_beat(key, entry)
        return key

    def set_beat(self, entries: Mapping[str, Mapping[str, Any]], zone: str | None) -> None:
        """Replace the cycles of the beat schedule. Raises: DuplicateCycle, InvalidSchedule, CeleryUnsupported."""
        for name in self._beat:
            self.cycle_specs.pop(name, None)
        kept = {
            name: each for name, each in self._beat.items() if name not in self.conf.beat_cycles
        }
        self._beat, self._time_zone = {}, zone or self._time_zone
        for entry in kept.values():
            self._add_cycle(entry)
        self.conf.beat_cycles = {cycle_name(name) for name in entries}
        for name, each in entries.items():
            self._add_beat(name, each)

    def _add_beat(self, name: str, entry: Mapping[str, Any]) -> None:
        checked = beat_entry(name, entry)
        self.read_call_options(checked.options, f"beat entry {name!r}")
        self._add_cycle(checked)

    def _add_cycle(self, entry: BeatEntry) -> None:
        if entry.cycle in self.cycle_specs:
            raise DuplicateCycle(f"cycle {entry.cycle} is already registered")

        def start_task(run: CycleRun) -> None:
            signature = TaskSignature(entry.task, entry.args, entry.kwargs, app=self)
            signature.set(**{"task_id": run.key, **entry.options})
            steps = send_before_publish(self, signature.steps(self))
            with run.transaction() as tx:
                start_steps(self, tx, steps)

        self.cycle(entry.cycle, **cycle_timing(entry.schedule))(start_task)
        self._beat[entry.cycle] = entry

    def read_call_options(self, options: Mapping[str, Any], where: str) -> CallOptions:
        """Check the options of a start; 0 is then the most urgent. Raises: CeleryUnsupported, InvalidOption."""
        return self._with_our_priority(self._with_known_queue(read_options(options, where)))

    def default_options(
        self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], options: Mapping[str, Any]
    ) -> CallOptions:
        """Return what a call is started with unless it says otherwise. Raises: UnknownJobType, CeleryUnsupported."""
        self.registry.get(name)
        if name in self._mapping:
            # It goes where the task goes that it calls.
            return self.default_options(kwargs["task"], args, {}, options)
        task = self.tasks.get(name)
        found = CallOptions() if task is None else task.options.defaults
        if found.queue is None:
            found = found.merge(
                CallOptions(queue=self.conf.routes.find(name, args, kwargs, options))
            )
        if found.priority is None and self.conf.task_default_priority is not None:
            found = found.merge(CallOptions(priority=self.conf.task_default_priority))
        return self._with_our_priority(self._with_known_queue(found))

    @property
    def queues(self) -> set[str]:
        """The queues beside the default one: those that settings and decorators name."""
        of_tasks = {each.options.defaults.queue for each in self.tasks.values()}
        named = {*of_tasks, *self.conf.routes.queues, *read_queues(self.conf.task_queues)}
        return {each for each in named if each and each != self.conf.task_default_queue}

    def _with_known_queue(self, options: CallOptions) -> CallOptions:
        if not options.queue:
            return options
        if options.queue == self.conf.task_default_queue:
            return msgspec.structs.replace(options, queue="")
        if options.queue not in self.queues:
            raise CeleryUnsupported(
                f"queue {options.queue!r} is in no setting and no decorator, so no worker would serve it",
                help=f"add it to the settings: task_queues = [{options.queue!r}, …]",
            )
        return options

    def _with_our_priority(self, options: CallOptions) -> CallOptions:
        if options.priority is None or not self._highest_priority:
            return options
        return options.merge(CallOptions(priority=self._highest_priority - options.priority))

    @property
    def is_loaded(self) -> bool:
        """Whether tasks were looked up, and settings that concern all of them are fixed."""
        return self._is_loaded

    def load_tasks(self) -> None:
        """Import the modules with tasks and register their job types; the first look at the registry does it."""
        if self._is_loaded:
            return
        with self._loading:
            # Modules that are being imported may look tasks up themselves; other threads wait for the lock.
            if self.is_loaded or self._is_loading:
                return
            self._is_loading = True
            try:
                self._load()
                self._is_loaded = True
            finally:
                self._is_loading = False

    def _load(self) -> None:
        self._settle()
        self.on_after_configure.call()
        import_modules.send(self)
        for module in [*self._modules, *self.conf.imports, *self.conf.include]:
            _import_tasks(module)
        self.on_after_configure.call()

        def collect(job: Job[TaskCall]) -> Any:
            return collect_results(job, self)

        if not Registry.__contains__(self.registry, COLLECT):
            self.job(COLLECT)(collect)
        if not Registry.__contains__(self.registry, GROUP):
            self.job(GROUP)(keep_group)
        for task in [*self._mapping.values(), *self.tasks.values()]:
            self._register(task)

    def _register(self, task: CeleryTask) -> None:
        for queue in ("", *sorted(self.queues)):
            name = type_name(task.name, queue)
            if not Registry.__contains__(self.registry, name):
                runner = self.runner_class(task, self)
                self.job(name, **runner.options())(runner.handler())


def keep_group(job: Job[Any]) -> None:
    """Do nothing: a group that was saved is what its job was given."""


class TaskLoader:
    """What programs ask of `app.loader`: to look tasks up."""

    def __init__(self, app: Celery) -> None:
        self._app = app

    def import_default_modules(self) -> None:
        """Import the modules with tasks."""
        self._app.load_tasks()


class Connections:
    """Functions to call before tasks are looked up, as the signals of an application's configuration."""

    def __init__(self, app: Celery) -> None:
        self._app = app
        self._functions: list[Callable[..., Any]] = []

    def connect(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Call the decorated function with sender=app."""
        self._functions.append(function)
        return function

    def call(self) -> None:
        """Call those that were not called yet."""
        waiting, self._functions = self._functions, []
        for each in waiting:
            each(sender=self._app)


_QUEUES = ("task_queues", "task_routes", "task_default_queue")
_FIXED = frozenset({"task_time_limit", "task_ignore_result", "task_default_priority", *_QUEUES})
"""Settings of all tasks, which are read when they are first looked up."""


class BeatSchedule(UserDict[str, Mapping[str, Any]]):
    """The setting beat_schedule: an entry that is added to it, or taken out, counts at once."""

    def __init__(self, entries: Mapping[str, Mapping[str, Any]], app: Celery) -> None:
        super().__init__()
        self.data = dict(entries)
        self._app = app

    def __setitem__(self, name: str, entry: Mapping[str, Any]) -> None:
        self._replace({**self.data, name: entry})

    def __delitem__(self, name: str) -> None:
        self._replace({each: entry for each, entry in self.data.items() if each != name})

    def _replace(self, entries: dict[str, Mapping[str, Any]]) -> None:
        if self._app.conf.beat_schedule is self:
            self._app.set_beat(entries, self._app.conf.timezone)
        self.data = entries


class CeleryConf:
    """The settings of an application: `app.conf.timezone = …`, `app.conf.update(…)`."""

    beat_schedule: MutableMapping[str, Mapping[str, Any]]
    timezone: str | None = None
    imports: Iterable[str] = ()
    include: Iterable[str] = ()
    enable_utc: bool = True
    accept_content: Iterable[str] = ("json",)
    task_time_limit: float | None = None
    task_default_priority: int | None = None
    task_ignore_result: bool = False
    task_default_queue: str = DEFAULT_QUEUE
    task_queues: Any = None
    task_routes: Any = None
    task_always_eager: bool = False
    task_eager_propagates: bool = False
    worker_concurrency: int | str | None = None

    def __init__(self, app: Celery) -> None:
        object.__setattr__(self, "_app", app)
        object.__setattr__(self, "beat_cycles", set[str]())
        object.__setattr__(self, "routes", Routes(None))
        self._keep_schedule({})

    def _keep_schedule(self, entries: Mapping[str, Mapping[str, Any]]) -> None:
        object.__setattr__(self, "beat_schedule", BeatSchedule(entries, self._app))

    beat_cycles: set[str]
    """The cycles that come from beat_schedule."""
    routes: Routes
    """What task_routes says."""
    _app: Celery

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "beat_cycles":
            object.__setattr__(self, name, value)
            return
        self.update({name: value})

    def __setitem__(self, name: str, value: Any) -> None:
        self.update({name: value})

    if not TYPE_CHECKING:
        __getattr__ = refuse_attributes("setting")

    def update(self, given: Mapping[str, Any] | None = None, /, **more: Any) -> None:
        """Set several. Raises: CeleryUnsupported for those that are not covered, all in one."""
        settings = {**(given or {}), **more}
        _check_settings(settings)
        fixed = sorted(_FIXED & settings.keys())
        if fixed and self._app.is_loaded:
            raise CeleryUnsupported(
                f"{fixed[0]} was set after tasks were looked up",
                help="set it next to app = Celery(…)",
            )
        read_queues(settings.get("task_queues"))
        if "task_routes" in settings:
            object.__setattr__(self, "routes", Routes(settings["task_routes"]))
        for name, value in settings.items():
            object.__setattr__(self, name, value)
        if "beat_schedule" in settings:
            self._keep_schedule(settings["beat_schedule"])
        if settings.keys() & {"beat_schedule", "timezone"}:
            self._app.set_beat(self.beat_schedule, self.timezone)


_KINDS: Mapping[str, tuple[type, ...]] = {
    "beat_schedule": (dict, BeatSchedule),
    "timezone": (str,),
    "imports": (list, tuple, set),
    "include": (list, tuple, set),
    "task_time_limit": (int, float, type(None)),
    "task_ignore_result": (bool,),
    "task_default_queue": (str,),
    "task_always_eager": (bool,),
    "task_eager_propagates": (bool,),
    "worker_concurrency": (int, str, type(None)),
}


def _check_settings(settings: Mapping[str, Any]) -> None:
    refused = [name for name in settings if not _is_covered(name)]
    if len(refused) == 1:
        raise refuse("setting", refused[0])
    if refused:
        errors = [refuse("setting", name) for name in refused]
        raise CeleryUnsupported(
            f"{len(refused)} settings are not covered: {', '.join(refused)}",
            details=[f"{name}: {each.help}" for name, each in zip(refused, errors, strict=True)],
            help="remove them; while Celery still runs, name its own in ignore=[…] of config_from_object",
        )
    check_always_so("setting", settings)
    for name, value in settings.items():
        if name in _KINDS:
            check_kind(name, value, _KINDS[name])
    if settings.get("task_default_priority") is not None:
        check_celery_priority(settings["task_default_priority"])


def _is_covered(setting: str) -> bool:
    found = find_feature("setting", setting)
    return found is not None and found.is_covered


def read_settings(source: Any, namespace: str) -> dict[str, Any]:
    """Return the settings of an object, mapping or module, in Celery's lowercase names."""
    if isinstance(source, str):
        module, _, attribute = source.partition(":")
        source = importlib.import_module(module)
        for part in filter(None, attribute.split(".")):
            source = getattr(source, part)
    if isinstance(source, Mapping):
        values = dict(source)
    else:
        values = {name: getattr(source, name) for name in dir(source) if not name.startswith("_")}
    if namespace:
        prefix = f"{namespace}_"
        named = {
            name.removeprefix(prefix).lower(): value
            for name, value in values.items()
            if name.startswith(prefix)
        }
        # What else a project gives this prefix, and names of before Celery 4, Celery does not read either.
        return {name: each for name, each in named.items() if _is_read(name)}
    # Without a prefix, the names of before Celery 4 are settings, too.
    modern = {name: modern_setting(name) if name.isupper() else name for name in values}
    return {new: values[name] for name, new in modern.items() if new and _is_read(new)}


def _is_read(setting: str) -> bool:
    """Whether a setting of Celery's means something here; an object of settings is also read by others."""
    found = find_feature("setting", setting)
    return found is not None and not found.is_removable


def _import_tasks(module: str) -> None:
    if not module.startswith("?"):
        importlib.import_module(module)
        return
    package, _, name = module.removeprefix("?").rpartition(".")
    for each in _django_apps() if package == "*" else [package]:
        # Its tasks are those of Django's framework, which a project need not have.
        if each == "holdfast_django":
            continue
        if not name:
            importlib.import_module(each)
        elif _has_module(each, name):
            importlib.import_module(f"{each}.{name}")


def _has_module(package: str, name: str) -> bool:
    try:
        return importlib.util.find_spec(f"{package}.{name}") is not None
    except ModuleNotFoundError as error:
        # INSTALLED_APPS also has classes, as in shop.apps.ShopConfig, which are no packages.
        if error.name != package or "." not in package:
            raise
        return False


def _django_apps() -> list[str]:
    try:
        registry = importlib.import_module("django.apps").apps
    except ImportError as error:
        raise CeleryUnsupported(
            "autodiscover_tasks() without packages needs Django", help="pass the packages"
        ) from error
    if not registry.ready and not registry.loading:
        importlib.import_module("django").setup()
    return [each.name for each in registry.get_app_configs()]


@overload
def shared_task(function: Callable[..., Any], /) -> CeleryTask: ...
@overload
def shared_task(**options: Any) -> _Decorate: ...
def shared_task(function: Any = None, /, **options: Any) -> Any:
    """Make the decorated function a task of every application, present and future.

    Raises: CeleryUnsupported, InvalidName, DuplicateJobType.
    """

    def decorate(decorated: Callable[..., Any]) -> CeleryTask:
        made = make_task(decorated, options)
        share(lambda app: app.adopt(made))
        return made

    return decorate if function is None else decorate(function)
