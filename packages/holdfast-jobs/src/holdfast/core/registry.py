"""Job types, with their payloads' types and policies, and the registry of those that an application knows."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from types import NoneType
from typing import Any, Literal, NamedTuple, TypeAlias, TypedDict, TypeGuard

from holdfast.core.codec import TypeCodec
from holdfast.core.duration import Duration, milliseconds
from holdfast.core.env_options import (
    DURATION,
    NUMBER,
    FromEnv,
    OptionReader,
    duration_text,
    resolve_options,
)
from holdfast.core.errors import (
    DuplicateJobType,
    HandlerInvalid,
    InputInvalid,
    InputUnreadable,
    InvalidName,
    InvalidOption,
    UnknownJobType,
    nearest,
)
from holdfast.core.flow import By, Fair, Flow, Limit, Ordered, Rate, flow_of
from holdfast.core.instants import Instant
from holdfast.core.keep import Keep, keep_of
from holdfast.core.lease import Lease
from holdfast.core.outcome import Cancel, Continue, Snooze
from holdfast.core.retry import Retry
from holdfast.core.sealing import PayloadStore, Sealer
from holdfast.core.signatures import (
    Kinds,
    at_least_one,
    check_kind,
    is_async,
    name_of,
    signature_of,
)
from holdfast.core.upgrades import Upgrade, check_version, upgrade_input

ExecutorKind = Literal["loop", "thread", "process"]


@dataclass(frozen=True, slots=True)
class JobType:
    """Everything the code says about one job type. None leaves a value to the worker's own default."""

    name: str
    handler: Callable[..., Any] | None
    input: TypeCodec
    output: TypeCodec
    retry: Retry | None = None
    lease: Lease | None = None
    timeout_ms: int | None = None
    expires_ms: int | None = None
    concurrency: int | None = None
    batch: int | None = None
    atomic: bool = False
    executor: ExecutorKind = "loop"
    event: str | None = None
    entry: bool = True
    continues_to: tuple[str, ...] | None = None
    waits_for: tuple[str, ...] | None = None
    flow: Flow | None = None
    variables: Mapping[str, FromEnv[Any]] = field(default_factory=dict)
    """Which options come from the environment."""
    since: Instant | None = None
    keep_ms: int | None = None
    keep: Keep | None = None
    on_failed: Callable[..., Any] | None = None
    version: int = 1
    upgrades: dict[int, Upgrade] = field(default_factory=dict)
    step_upgrades: dict[str, Upgrade] = field(default_factory=dict)
    sealed: bool = False
    sealer: Sealer | None = None
    """What opens payloads in this process, sealed type or not."""
    around: Around | None = None
    """What is put around calls of its functions."""
    payloads: PayloadStore | None = field(init=False, default=None, repr=False, compare=False)
    """What keeps its large payloads; each job asks, and to compare with a protocol takes microseconds."""

    def __post_init__(self) -> None:
        if isinstance(self.sealer, PayloadStore):
            object.__setattr__(self, "payloads", self.sealer)

    @property
    def stored_version(self) -> int | None:
        """The version as it is written with a job: an unversioned input has none."""
        return None if self.version == 1 else self.version

    def current_input(self, text: str, stored: int | None) -> str:
        """Return a stored input as one of the current version. Raises: InputUnreadable."""
        if (stored or 1) == self.version:
            return text
        return upgrade_input(text, stored or 1, self.version, self.upgrades)

    def read_input(self, text: str, stored: int | None) -> Any:
        """Return the value of a stored input. Raises: InputUnreadable."""
        text = self.current_input(text, stored)
        try:
            return self.input.decode(text)
        except InputInvalid as error:
            raise InputUnreadable(
                error.message, type_name=error.type_name, path=error.path
            ) from error


Handler: TypeAlias = Callable[..., Any]
Around: TypeAlias = Callable[[Handler, bool], Handler]
"""Returns a call of a job with something around it; the flag says whether the call is to be awaited."""
Target: TypeAlias = str | Handler
"""A job type, said by its name or by its handler."""

_NAME = re.compile(r"\w[\w.:-]{0,199}")
_OUTCOMES = (Continue, Snooze, Cancel)


class TypeOptions(TypedDict, total=False):
    """Options of a job type, for `@app.job` and `@app.on`; what is left out comes from the settings."""

    retry: Retry
    """When and how often a failed job is retried; by default up to 25 attempts with growing delays, or 3 for event
    deliveries."""

    lease: Lease | Duration | FromEnv[Duration | None]
    """How long a worker can hold a job without renewing it, and so how soon a killed worker's job runs elsewhere; by
    default OUTBOX_LEASE_DURATION_MS. It is renewed while the handler runs."""

    timeout: Duration | FromEnv[Duration | None]
    """How long an attempt can take before it is aborted and counts as failed; by default three leases."""

    expires: Duration | FromEnv[Duration | None]
    """How long a job may be due before an attempt begins; after that it is cancelled. By default without limit."""

    concurrency: int | FromEnv[int | None]
    """How many jobs of this type run at once in each process; by default as many as there are slots."""

    batch: int | FromEnv[int | None]
    """How many jobs the handler takes at once: it gets a list of jobs and returns a list with a result for each."""

    batch_by: By
    """What the jobs of one call have in common: a field of the input, or a function of it. By default nothing."""

    batch_wait: Duration | FromEnv[Duration | None]
    """How long due jobs wait for more to fill the batch; by default not at all."""

    atomic: bool
    """Whether the handler runs in the transaction that completes the job, `job.tx`; by default False. For short work in
    the database only."""

    executor: ExecutorKind
    """Where the handler runs: on the event loop (`"loop"`, for `async def`), in a thread (`"thread"`, for `def`), or in
    its own process (`"process"`), which is killed at its timeout and keeps CPU-bound work away from others."""

    entry: bool
    """Whether a chain can begin with this type; if False, it can only be reached with `Continue`."""

    continues_to: Sequence[str]
    """The job types its handler can continue with; by default any registered type."""

    waits_for: Sequence[str]
    """The job types of chains it can have as `blockers`; by default any."""

    limits: Sequence[Limit]
    """How many jobs run at once across all workers: per key, per type, or for all types that share a name."""

    rates: Sequence[Rate]
    """How many jobs start within any period across all workers, counted like limits."""

    fair: Fair
    """Keys take turns, so a large backlog of one doesn't delay the others."""

    ordered: Ordered
    """Jobs of one key run one at a time, first in, first out."""

    on_failed: Callable[[Any], Any]
    """A function called with a job that fails for good, to note that in tables of your own: what it writes in
    `job.complete(…)` or `job.tx` commits together with the failure. `job.error` says why."""

    version: int
    """The version of the input, from 1; what was stored under earlier ones goes through `app.upgrade` functions."""

    sealed: bool
    """Whether inputs and outputs are encrypted in the database, and error texts left out; by default False."""


class JobOptions(TypeOptions, total=False):
    """Options of a job type, for `@app.job`."""

    keep: Keep | Duration
    """How long a chain that begins with this type is kept after its end; by default HOLDFAST_RETENTION_DAYS, or
    HOLDFAST_DEAD_LETTER_DAYS if it failed. A single time is for what completed or was cancelled."""


class TypeOption(NamedTuple):
    """What an option of a job type may be, how it is read from the environment, and what a `JobType` keeps of it."""

    kinds: Kinds
    keep: Callable[[str, Any], Any] | None = None
    """From the job type's field and the value to what the field holds; None where `flow_of` or the handler decide."""
    field: str = ""
    reader: OptionReader | None = None


def _as_given(_: str, value: Any) -> Any:
    return value


def _milliseconds(field: str, value: Duration | None) -> int | None:
    return at_least_one(field.removesuffix("_ms"), None if value is None else milliseconds(value))


def _lease(_: str, lease: Lease | Duration | None) -> Lease | None:
    return lease if lease is None or isinstance(lease, Lease) else Lease(lease)


def _names(_: str, names: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if names is None else tuple(names)


_LEASE = OptionReader(DURATION.expected, lambda given, text: Lease(duration_text(given, text)))
_SPAN: Kinds = (str, int, float, timedelta, NoneType)
_LIST: Kinds = (list, tuple, NoneType)

TYPE_OPTIONS: Mapping[str, TypeOption] = {
    "retry": TypeOption((Retry,), _as_given),
    "lease": TypeOption((Lease, *_SPAN), _lease, reader=_LEASE),
    "timeout": TypeOption(_SPAN, _milliseconds, "timeout_ms", DURATION),
    "expires": TypeOption(_SPAN, _milliseconds, "expires_ms", DURATION),
    "concurrency": TypeOption((int, NoneType), at_least_one, reader=NUMBER),
    "batch": TypeOption((int, NoneType), at_least_one, reader=NUMBER),
    "batch_by": TypeOption((object,)),
    "batch_wait": TypeOption(_SPAN, reader=DURATION),
    "atomic": TypeOption((bool,), _as_given),
    "executor": TypeOption((str,)),
    "entry": TypeOption((bool,), _as_given),
    "continues_to": TypeOption(_LIST, _names),
    "waits_for": TypeOption(_LIST, _names),
    "limits": TypeOption(_LIST),
    "rates": TypeOption(_LIST),
    "fair": TypeOption((Fair, NoneType)),
    "ordered": TypeOption((Ordered, NoneType)),
    "on_failed": TypeOption((Callable, NoneType), _as_given),  # type: ignore[arg-type]
    "version": TypeOption((int,), lambda _, value: check_version(value)),
    "sealed": TypeOption((bool,), _as_given),
    "keep": TypeOption((Keep, *_SPAN), lambda _, value: keep_of(value)),
}
"""The options of `TypeOptions`; a misspelled one must not be taken for its default."""

_READERS = {name: each.reader for name, each in TYPE_OPTIONS.items() if each.reader is not None}
"""The options that from_env works for."""


def is_name(name: str) -> bool:
    """Whether a text can be the name of a job type, event or handler."""
    return _NAME.fullmatch(name) is not None


def check_name(name: object) -> str:
    """Return a name of a job type, event or handler, or raise InvalidName."""
    if not isinstance(name, str) or not is_name(name):
        raise InvalidName(f"{repr(name)[:60]} is not a valid name")
    return name


def delivery_name(event: str, handler: str) -> str:
    """Return the job type that delivers an event to one of its handlers."""
    return f"{check_name(event)}/{check_name(handler)}"


class Registry:
    """The job types of one application."""

    def __init__(self) -> None:
        """Begin with none."""
        self.sealer: Sealer | None = None
        self.log_patterns: list[str] = []
        """Which events readers of the log, declared by an extension, want; `*` means anything."""
        self._types: dict[str, JobType] = {}
        self._by_handler: dict[Hashable, list[JobType]] = {}
        self._upgrades: dict[str, dict[int, Upgrade]] = {}

    def __iter__(self) -> Iterator[JobType]:
        """Go through the types in the order of their registration."""
        return iter(self._types.values())

    def __len__(self) -> int:
        """Count the types."""
        return len(self._types)

    def __contains__(self, name: object) -> bool:
        """Say whether a type of this name is registered."""
        return name in self._types

    def add(self, job_type: JobType) -> JobType:
        """Register a type. Raises: DuplicateJobType, InvalidOption when handlers of an event differ in its options."""
        if job_type.name in self._types:
            raise DuplicateJobType(f"job type {job_type.name} is already registered")
        self._check_siblings(job_type)
        # The handlers of an event share its upgrades, whichever is registered first.
        steps = self._upgrades.setdefault(job_type.event or job_type.name, {})
        sealer = job_type.sealer or self.sealer
        job_type = replace(job_type, upgrades=steps, sealer=sealer)
        self._types[job_type.name] = job_type
        if _can_be_looked_up(job_type.handler):
            self._by_handler.setdefault(job_type.handler, []).append(job_type)
        return job_type

    def find(self, target: Target) -> JobType | None:
        """Return the type of a name or handler, None when it is not registered here."""
        if isinstance(target, str):
            return self._types.get(target)
        found = self._by_handler.get(target, []) if _can_be_looked_up(target) else []
        if len(found) > 1:
            names = ", ".join(each.name for each in found)
            raise UnknownJobType(
                f"{name_of(target)} handles several job types: {names}",
                help="pass the job type's name",
            )
        return found[0] if found else None

    def get(self, target: Target) -> JobType:
        """Return the type of a name or handler. Raises: UnknownJobType with the nearest name."""
        found = self.find(target)
        if found is None:
            raise self._unknown(target)
        return found

    def of_event(self, event: str) -> list[JobType]:
        """Return the types that deliver an event."""
        return [each for each in self if each.event == event]

    def add_upgrade(self, target: Target, version: object, upgrade: Upgrade) -> None:
        """Register how an input of a version becomes one of the next. Raises: UnknownJobType, InvalidOption."""
        named = self.of_event(target) if isinstance(target, str) else []
        known = named[0] if named else self.get(target)
        name = known.event or known.name
        number = check_version(version)
        if number >= known.version:
            raise InvalidOption(
                f"{name} has version {known.version}, so nothing is upgraded from version {number}",
                help=f"set version={number + 1} on it; an upgrade leads to the next version",
            )
        if number in self._upgrades[name]:
            raise InvalidOption(f"{name} already has an upgrade from version {number}")
        self._upgrades[name][number] = upgrade

    def add_step_upgrade(self, target: Target, step: str, upgrade: Upgrade) -> None:
        """Register how a step's result becomes one that the code reads. Raises: UnknownJobType, InvalidOption."""
        known = self.get(target)
        if step in known.step_upgrades:
            raise InvalidOption(f"step {step} of {known.name} already has an upgrade")
        known.step_upgrades[step] = upgrade

    def _check_siblings(self, job_type: JobType) -> None:
        event = job_type.event or job_type.name
        declared = [] if job_type.event is None else [self._types.get(event)]
        for other in (*declared, *self.of_event(event)):
            if other is not None and other.version != job_type.version:
                raise InvalidOption(
                    f"{job_type.name} has version {job_type.version} of the event {event}, "
                    f"and {other.name} version {other.version}",
                    help="an event has one version: give it to its declaration and all its handlers",
                )
            if other is not None and other.sealed != job_type.sealed:
                raise InvalidOption(
                    f"of the event {event}, {job_type.name} and {other.name} differ in sealed=",
                    help="an event is sealed or not: give it to its declaration and all its handlers",
                )

    def check(self) -> None:
        """Refuse declared continuations and blockers that are not registered."""
        for job_type in self:
            for word, names in (
                ("continues with", job_type.continues_to),
                ("waits for", job_type.waits_for),
            ):
                for name in names or ():
                    if name not in self:
                        raise self._unknown(name, f"{job_type.name} {word} unknown {name!r}")

    def _unknown(self, target: Target, message: str | None = None) -> UnknownJobType:
        if not isinstance(target, str):
            return UnknownJobType(
                f"{name_of(target)} is not a registered handler",
                help="decorate it with @app.job, or start the job type by its name",
            )
        near = nearest(target, self._types)
        hint = f"{near} Otherwise " if near else ""
        return UnknownJobType(
            message or f"no job type {target[:60]!r} is registered",
            help=f"{hint}register it with @app.job, or declare with app.declare({target[:60]!r}) or "
            "Holdfast(open_types=True) that another service handles it",
        )


def job_type_of(
    handler: Handler,
    name: str,
    generic: type,
    given: TypeOptions | JobOptions,
    event: str | None = None,
) -> JobType:
    """Make the type that a handler's annotations and options describe; `generic` is the job's class.

    Raises: HandlerInvalid, InvalidOption, InvalidDuration, ConfigError.
    """
    options, variables = resolve_options(f"job type {name}", given, _READERS)
    _check_options(options)
    signature = signature_of(handler, generic, _OUTCOMES)
    kept = {
        option.field or name: option.keep(option.field or name, options[name])
        for name, option in TYPE_OPTIONS.items()
        if name in options and option.keep is not None
    }
    if signature.takes_batches and kept.get("batch") is None:
        raise HandlerInvalid(
            f"{name_of(handler)} takes a list of jobs but its type sets no batch",
            help="add batch=… to the decorator, or take a single job",
        )
    codec = TypeCodec(signature.input, "input")
    return JobType(
        name=name,
        handler=handler,
        input=codec,
        output=TypeCodec(signature.output, "output"),
        executor=_executor(handler, options),
        event=event,
        flow=flow_of(name, codec, options),
        variables=variables,
        **kept,
    )


def _check_options(options: Mapping[str, object]) -> None:
    for option, value in options.items():
        known_option = TYPE_OPTIONS.get(option)
        if known_option is None:
            known = nearest(option, TYPE_OPTIONS) or f"there are {', '.join(TYPE_OPTIONS)}"
            if option in ("max_attempts", "base", "cap", "multiplier", "jitter"):
                known = f"it belongs to the policy: retry=Retry({option}=…)"
            raise InvalidOption(f"a job type has no option {option!r}", help=known)
        check_kind(option, value, known_option.kinds)


def _executor(handler: Handler, options: Mapping[str, Any]) -> ExecutorKind:
    natural: ExecutorKind = "loop" if is_async(handler) else "thread"
    chosen: ExecutorKind = options.get("executor", natural)
    if chosen == "process" and options.get("atomic", False):
        raise InvalidOption(
            'an atomic handler cannot run with executor="process"',
            help="its transaction belongs to the worker's process; omit one of the two",
        )
    if chosen not in (natural, "process"):
        colour = "async" if natural == "loop" else "not async"
        raise InvalidOption(
            f"{name_of(handler)} is {colour}, so it cannot run with executor={chosen!r}",
            help=f'omit executor, which means {natural!r}, or set "process"',
        )
    return chosen


def _can_be_looked_up(handler: object) -> TypeGuard[Hashable]:
    return callable(handler) and isinstance(handler, Hashable)
