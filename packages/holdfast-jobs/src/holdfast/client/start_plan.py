"""From what a caller asks for to what is written: options are checked, requests planned, and commands made of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Unpack, get_args
from uuid import UUID

import msgspec

from holdfast.client.client import ClientCommand, Conditions, Trace
from holdfast.client.start_options import (
    Id,
    SharedOptions,
    StartOptions,
    check_attempts,
    check_choice,
    check_debounce,
    check_expiry,
    check_key,
    check_options,
    check_priority,
    check_time,
    id_texts,
    new_id_text,
)
from holdfast.client.start_targets import StartableType, Targets
from holdfast.client.views import Chain, chain_of, new_chain, removed_chain
from holdfast.commands.change import Change, due_hints
from holdfast.commands.debounce import Unsealed
from holdfast.commands.start import Started, StartRequest, keep_large, publish_event, start_chains
from holdfast.core.duration import Duration, milliseconds
from holdfast.core.errors import InvalidId, InvalidOption
from holdfast.core.events import Event, event
from holdfast.core.ids import bucket_of_key, in_bucket
from holdfast.core.instants import Expiry, Instant
from holdfast.core.records import (
    DEFAULT_PRIORITY,
    ChainRecord,
    Debounce,
    KeyScope,
    NewBlocker,
    NewJob,
    NewKey,
    OnBlockerFailure,
)
from holdfast.core.registry import Target
from holdfast.core.sealing import Sealer
from holdfast.notify.base import LOG_HINT
from holdfast.storage.after_commit import Witness
from holdfast.storage.id_generator import new_id, new_ids
from holdfast.storage.operation import Op
from holdfast.storage.store import Store

SCOPES = get_args(KeyScope)

POLICIES = get_args(OnBlockerFailure)

_OTHER_ID = "create a new id for each chain"


class Start:
    """One of several different chains that `app.start_all` starts together; takes what `app.start` takes."""

    __slots__ = ("input", "options", "target")

    def __init__(self, target: Target, input: Any = None, **options: Unpack[StartOptions]) -> None:
        self.target = target
        self.input = input
        self.options = options


class Starter:
    """Checks what a caller asks for and turns it into a batch to be written."""

    def __init__(self, targets: Targets) -> None:
        self._targets = targets

    def one(self, target: Target, input: Any, options: StartOptions) -> Batch:
        """Check one start. Raises: the errors of names, payloads and options."""
        check_options(options, StartOptions)
        request, delay = self._pair(target, input, **options)
        return Batch([request], [delay] if delay else None)

    def all(self, starts: Iterable[Start]) -> Batch:
        """Check starts of different types and options."""
        starts = list(starts)
        for each in starts:
            check_options(each.options, StartOptions)
        pairs = [self._pair(each.target, each.input, **each.options) for each in starts]
        seen: set[str] = set()
        for request, _ in pairs:
            if request.job.id in seen:
                raise InvalidId(f"{request.job.id} was given twice", help=_OTHER_ID)
            seen.add(request.job.id)
        delays = [delay for _, delay in pairs]
        return Batch([request for request, _ in pairs], delays if any(delays) else None)

    def many(
        self,
        target: Target,
        inputs: Iterable[Any],
        keys: Iterable[str | None] | None,
        options: SharedOptions,
    ) -> Batch:
        """Check many starts of one type, whose options are checked once."""
        check_options(options, SharedOptions)
        plan = self._plan(target, **options)
        if keys is None and plan.is_about_keys:
            raise InvalidOption(
                "scope, window, exclude and debounce need keys", help="add keys=[…], one per input"
            )
        encode, entry = self._targets.encode, plan.entry
        texts = [encode(entry, each) for each in inputs]
        checked = [None] * len(texts) if keys is None else [check_key(each) for each in keys]
        if plan.debounce is not None and None in checked:
            raise InvalidOption("debounce needs a key", help="give each input one")
        if len(checked) != len(texts):
            raise InvalidOption(f"there are {len(texts)} inputs but {len(checked)} keys")
        ids: Iterable[str] = new_ids(len(texts))
        if keys is not None:
            ids = map(_id_for, ids, checked)
        requests = list(map(plan.request, ids, checked, texts))
        return Batch(requests, [plan.after_ms] * len(texts) if plan.after_ms else None)

    def _pair(
        self,
        target: Target,
        input: Any,
        *,
        key: str | None = None,
        id: UUID | str | None = None,
        **shared: Unpack[SharedOptions],
    ) -> tuple[StartRequest, int | None]:
        plan = self._plan(target, **shared) if shared else StartPlan(self._targets.entry(target))
        if key is None and plan.is_about_keys:
            raise InvalidOption(
                "scope, window, exclude and debounce need a key",
                help="add the key whose starts belong together, such as doc:7",
            )
        if id is not None and plan.debounce is not None:
            raise InvalidOption(
                "id cannot be combined with debounce",
                help="the key makes it safe to repeat the call",
            )
        checked = check_key(key)
        made = _id_for(new_id(), checked) if id is None else new_id_text(id)
        text = self._targets.encode(plan.entry, input)
        return plan.request(made, checked, text), plan.after_ms

    def _plan(
        self,
        target: Target,
        *,
        scope: KeyScope = "open",
        window: Duration | None = None,
        exclude: Sequence[Id] = (),
        debounce: Duration | None = None,
        latest: Duration | None = None,
        at: datetime | None = None,
        after: Duration | None = None,
        expires: Duration | datetime | None = None,
        priority: int = DEFAULT_PRIORITY,
        blockers: Sequence[Id] = (),
        on_blocker_failure: OnBlockerFailure = "fail",
        max_attempts: int | None = None,
        version: int | None = None,
        sealed: bool | None = None,
        context: Mapping[str, str] | None = None,
    ) -> StartPlan:
        quiet = check_debounce(
            debounce,
            latest,
            scope=scope != "open",
            window=window is not None,
            exclude=bool(exclude),
            at=at is not None,
            after=after is not None,
            expires=expires is not None,
            blockers=bool(blockers),
        )
        if quiet is not None:
            after = quiet.quiet_ms / 1000
        entry = self._targets.entry(target, version)
        if sealed is not None:
            entry = entry.with_seal(sealed)
        planned, after_ms = check_time(at, after), None if after is None else milliseconds(after)
        return StartPlan(
            entry=entry,
            priority=entry.check_priority(priority),
            at=planned,
            after_ms=after_ms,
            expiry=check_expiry(expires, planned, after_ms),
            scope=check_choice("scope", scope, SCOPES),
            window_ms=None if window is None else milliseconds(window),
            exclude=id_texts(exclude),
            debounce=quiet,
            blockers=id_texts(blockers),
            on_blocker_failure=check_choice("on_blocker_failure", on_blocker_failure, POLICIES),
            max_attempts=check_attempts(max_attempts),
            context=self._targets.encode_context(context),
        )


def _id_for(made: str, key: str | None) -> str:
    """Everything with one key has one bucket, so that the key can be looked up where its jobs are."""
    return made if key is None else in_bucket(made, bucket_of_key(key))


class StartPlan(msgspec.Struct, frozen=True):
    """The checked options that chains of one type are started with."""

    entry: StartableType
    priority: int = DEFAULT_PRIORITY
    at: Instant | None = None
    after_ms: int | None = None
    scope: KeyScope = "open"
    window_ms: int | None = None
    exclude: list[str] = []
    blockers: list[str] = []
    on_blocker_failure: OnBlockerFailure = "fail"
    max_attempts: int | None = None
    debounce: Debounce | None = None
    expiry: Expiry | None = None
    context: str | None = None

    @property
    def is_about_keys(self) -> bool:
        """Whether an option was given that means nothing without a key."""
        about = (self.window_ms, self.debounce)
        return self.scope != "open" or about != (None, None) or bool(self.exclude)

    def request(self, id: str, key: str | None, input: str) -> StartRequest:
        """Return what is written for one chain, its delay left open."""
        entry = self.entry
        gate, ordered, cost = entry.place(input)
        job = NewJob(
            id,
            id,
            entry.name,
            entry.stored_input(id, input),
            priority=self.priority,
            at=self.at,
            key=key,
            max_attempts=self.max_attempts,
            blockers=len(self.blockers),
            gate=gate,
            ordered=ordered,
            version=entry.version,
            context=self.context,
            cost=cost,
        )
        unsealed = Unsealed(input, entry.stored_input) if entry.sealed else None
        expiry = self.expiry if entry.expires_ms is None else self._expiry(entry.expires_ms)
        if key is None and not self.blockers:
            return StartRequest(job, unsealed=unsealed, expiry=expiry)
        return StartRequest(
            job,
            self._new_key(id, key),
            self._edges(id),
            entry.waits_for,
            self.debounce,
            unsealed,
            expiry,
        )

    def _expiry(self, span_ms: int) -> Expiry | None:
        if self.expiry is not None or self.debounce or self.blockers:
            return self.expiry
        if self.at is not None:
            return self.at + span_ms * 1000, None
        return None, (self.after_ms or 0) + span_ms

    def _new_key(self, id: str, key: str | None) -> NewKey | None:
        if key is None:
            return None
        return NewKey(self.entry.name, key, id, self.scope, self.window_ms, self.exclude)

    def _edges(self, id: str) -> tuple[NewBlocker, ...]:
        return tuple(
            NewBlocker(id, position, chain_id, self.on_blocker_failure)
            for position, chain_id in enumerate(self.blockers)
        )


class Batch(msgspec.Struct, frozen=True):
    """Chains to be started together; `delays_ms` count from the database's clock, None where there is none."""

    requests: list[StartRequest]
    delays_ms: list[int | None] | None

    def at_times(self, now: Instant) -> list[StartRequest]:
        """Return the requests with their delays as times."""
        return [
            request if delay is None else with_job(request, at=now + delay * 1000)
            for request, delay in zip(self.requests, self.delays_ms or (), strict=True)
        ]


def with_job(request: StartRequest, **changes: Any) -> StartRequest:
    """Return a request with other fields of its job."""
    job = msgspec.structs.replace(request.job, **changes)
    return msgspec.structs.replace(request, job=job)


def with_context(requests: Sequence[StartRequest], context: str | None) -> list[StartRequest]:
    """Return requests with a context, except those that were given one."""
    return [
        each if each.job.context is not None else with_job(each, context=context)
        for each in requests
    ]


def start_command(batch: Batch) -> ClientCommand[list[Chain]]:
    """Return the command that starts chains."""

    def command(store: Store, conditions: Conditions) -> Op[Change[list[Chain]]]:
        requests = batch.requests
        if not requests:
            return Change([])
        yield from keep_large(conditions.sealer, requests)
        if batch.delays_ms is not None:
            requests = batch.at_times((yield from store.schema.clock()))
        if conditions.trace is not None:
            requests = _with_traces(requests, conditions.trace)
        if conditions.capture is not None:
            requests = with_context(requests, conditions.capture())
        started = yield from start_chains(store, requests, conditions.channel)
        earlier = sorted({each.id for each in started if each.deduplicated})
        records = (yield from store.chains.get(earlier)) if earlier else []
        known = {each.id: each for each in records}
        chains = [
            _earlier(request.job, answer, known.get(answer.id), conditions.sealer)
            if answer.deduplicated
            else new_chain(answer, request.job.key, request.clear_input)
            for request, answer in zip(requests, started, strict=True)
        ]
        return _change(chains, started, conditions)

    return command


def publish_command(
    targets: Targets,
    name: str,
    input: Any,
    *,
    at: datetime | None = None,
    after: Duration | None = None,
    priority: int = DEFAULT_PRIORITY,
    key: str | None = None,
    context: Mapping[str, str] | None = None,
) -> ClientCommand[list[Chain]]:
    """Return the command that publishes an event. Raises: the errors of names, payloads and options."""
    text = targets.encode_event(name, input)
    entry = targets.event(name)
    planned = check_time(at, after)
    after_ms = None if after is None else milliseconds(after)
    urgency = check_priority(priority)
    order_key = check_key(key)
    given = targets.encode_context(context)

    def command(store: Store, conditions: Conditions) -> Op[Change[list[Chain]]]:
        moment = planned
        if after_ms is not None:
            moment = (yield from store.schema.clock()) + after_ms * 1000
        job_id = new_id()
        new = NewJob(
            id=job_id,
            chain_id=job_id,
            type=name,
            input=entry.stored_input(job_id, text),
            priority=urgency,
            at=moment,
            key=order_key,
            trace=None if conditions.trace is None else conditions.trace(name),
            version=entry.version,
            context=conditions.capture() if given is None and conditions.capture else given,
        )
        yield from keep_large(conditions.sealer, jobs := [new])
        published = yield from publish_event(
            store, jobs[0], conditions.channel, is_declared=targets.is_logged(name)
        )
        started = [Started(each.id, each.type, "pending", False) for each in published.deliveries]
        chains = [new_chain(each, None, text) for each in started]
        change = _change(chains, started, conditions)
        if published.is_logged and not conditions.channel:
            hints = (*change.hints, LOG_HINT)
            return Change(chains, (), hints, change.events, change.witness)
        return change

    return command


USED = "used "
"""What the scopes of used keys begin with in the database; with a space in it, no job type is called that."""


def use_key_command(scope: str, key: str) -> ClientCommand[bool]:
    """Return the command that records the use of a key. Raises: InvalidOption."""
    for each in (scope, key):
        if check_key(each) is None:
            raise InvalidOption("a used key needs a scope and a key")

    def command(store: Store, conditions: Conditions) -> Op[Change[bool]]:
        is_first = yield from store.chains.use_key(f"{USED}{scope}", key)
        if not is_first:
            yield from store.schema.confirm()
        return Change(is_first)

    return command


def _change(
    chains: list[Chain], started: Sequence[Started], conditions: Conditions
) -> Change[list[Chain]]:
    """Return started chains with their hints and events; with a channel, the insert has sent the hints itself."""
    fresh = [each for each in started if not each.deduplicated]
    if not fresh:
        return Change(chains)
    due = () if conditions.channel else {each.type for each in fresh if each.state == "pending"}
    events = (
        [created_event(each.id, each.type) for each in fresh] if conditions.has_observers else ()
    )
    return Change(chains, (), due_hints(due), events, Witness(fresh[0].id, "there"))


def created_event(id: str, type: str) -> Event:
    """Return the event that a chain was started."""
    return event("job_created", job_id=id, type=type, chain_id=id)


def _earlier(
    job: NewJob, answer: Started, record: ChainRecord | None, sealer: Sealer | None
) -> Chain:
    if answer.state == "removed":
        return removed_chain(answer.id, job.type, job.key)
    if record is None or record.type != job.type:
        raise InvalidId(f"{job.id} is already the id of another job", help=_OTHER_ID)
    return chain_of(record, sealer, deduplicated=True)


def _with_traces(requests: Sequence[StartRequest], trace: Trace) -> list[StartRequest]:
    traces = {type: trace(type) for type in {each.job.type for each in requests}}
    return [with_job(each, trace=traces[each.job.type]) for each in requests]
