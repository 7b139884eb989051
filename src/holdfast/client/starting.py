"""Starting chains: from the caller's words to requests, checked first, and back to chains."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Unpack, get_args
from uuid import UUID

from holdfast.client.client import Write
from holdfast.client.options import (
    Id,
    SharedOptions,
    StartOptions,
    check_attempts,
    check_choice,
    check_key,
    check_priority,
    check_time,
    id_text,
    id_texts,
)
from holdfast.client.targets import Entry, Targets
from holdfast.client.views import Chain, chain_of, new_chain
from holdfast.core.duration import Duration, milliseconds
from holdfast.core.errors import InvalidId, InvalidOption
from holdfast.core.model import (
    DEFAULT_PRIORITY,
    ChainRecord,
    Instant,
    KeyScope,
    NewBlocker,
    NewJob,
    NewKey,
    OnBlockerFailure,
)
from holdfast.core.registry import Target
from holdfast.ops.start import Started, StartRequest, start_chains
from holdfast.storage.identifiers import new_id, new_ids
from holdfast.storage.port import Store
from holdfast.storage.statement import Op


class Start:
    """One of several different chains that `app.start_all` starts together; takes what `app.start` takes."""

    __slots__ = ("input", "options", "target")

    def __init__(self, target: Target, input: Any = None, **options: Unpack[StartOptions]) -> None:
        self.target = target
        self.input = input
        self.options = options


@dataclass(frozen=True, slots=True)
class Plan:
    """The checked options that chains of one type are started with."""

    entry: Entry
    priority: int
    at: Instant | None
    after_ms: int | None
    scope: KeyScope
    window_ms: int | None
    exclude: list[str]
    blockers: list[str]
    on_blocker_failure: OnBlockerFailure
    max_attempts: int | None

    @property
    def is_about_keys(self) -> bool:
        """Whether an option was given that means nothing without a key."""
        return self.scope != "open" or self.window_ms is not None or bool(self.exclude)


@dataclass(frozen=True, slots=True)
class Item:
    """One chain to be started."""

    plan: Plan
    id: str
    key: str | None
    input: str

    def request(self, now: Instant | None) -> StartRequest:
        """Return what is written; `now` is the database's clock where the plan counts from it."""
        plan = self.plan
        at = plan.at
        if plan.after_ms is not None and now is not None:
            at = now + plan.after_ms * 1000
        job = NewJob(
            id=self.id,
            chain_id=self.id,
            type=plan.entry.name,
            input=self.input,
            priority=plan.priority,
            at=at,
            key=self.key,
            max_attempts=plan.max_attempts,
            blockers=len(plan.blockers),
        )
        return StartRequest(job, self._new_key(), self._edges())

    def _new_key(self) -> NewKey | None:
        if self.key is None:
            return None
        plan = self.plan
        return NewKey(plan.entry.name, self.key, self.id, plan.scope, plan.window_ms, plan.exclude)

    def _edges(self) -> tuple[NewBlocker, ...]:
        return tuple(
            NewBlocker(self.id, position, chain_id, self.plan.on_blocker_failure)
            for position, chain_id in enumerate(self.plan.blockers)
        )


class Starter:
    """Turns the caller's words into writes."""

    def __init__(self, targets: Targets) -> None:
        self._targets = targets

    def one(self, start: Start) -> Item:
        """Check one start. Raises: the errors of names, payloads and options."""
        return self._item(start.target, start.input, **start.options)

    def many(
        self,
        target: Target,
        inputs: Iterable[Any],
        keys: Iterable[str | None] | None,
        options: SharedOptions,
    ) -> list[Item]:
        """Check many starts of one type, whose options are looked at once."""
        plan = self._plan(target, **options)
        if keys is None and plan.is_about_keys:
            raise InvalidOption("scope, window and exclude mean nothing without keys")
        encode, entry = self._targets.encode, plan.entry
        texts = [encode(entry, each) for each in inputs]
        checked = [None] * len(texts) if keys is None else [check_key(each) for each in keys]
        if len(checked) != len(texts):
            raise InvalidOption(f"there are {len(texts)} inputs but {len(checked)} keys")
        return [
            Item(plan, id, key, text)
            for id, key, text in zip(new_ids(len(texts)), checked, texts, strict=True)
        ]

    def _item(
        self,
        target: Target,
        input: Any,
        *,
        key: str | None = None,
        id: UUID | str | None = None,
        **shared: Unpack[SharedOptions],
    ) -> Item:
        plan = self._plan(target, **shared)
        if key is None and plan.is_about_keys:
            raise InvalidOption("scope, window and exclude mean nothing without a key")
        made = new_id() if id is None else id_text(id)
        return Item(plan, made, check_key(key), self._targets.encode(plan.entry, input))

    def _plan(
        self,
        target: Target,
        *,
        scope: KeyScope = "open",
        window: Duration | None = None,
        exclude: Sequence[Id] = (),
        at: datetime | None = None,
        after: Duration | None = None,
        priority: int = DEFAULT_PRIORITY,
        blockers: Sequence[Id] = (),
        on_blocker_failure: OnBlockerFailure = "fail",
        max_attempts: int | None = None,
    ) -> Plan:
        return Plan(
            entry=self._targets.entry(target),
            priority=check_priority(priority),
            at=check_time(at, after),
            after_ms=None if after is None else milliseconds(after),
            scope=check_choice("scope", scope, get_args(KeyScope)),
            window_ms=None if window is None else milliseconds(window),
            exclude=id_texts(exclude),
            blockers=id_texts(blockers),
            on_blocker_failure=check_choice(
                "on_blocker_failure", on_blocker_failure, get_args(OnBlockerFailure)
            ),
            max_attempts=check_attempts(max_attempts),
        )


def start_write(items: Sequence[Item]) -> Write[list[Chain]]:
    """Return the write that starts chains; whoever waits for such jobs hears of it."""

    def op(store: Store, channel: str | None) -> Op[list[Chain]]:
        now = None
        if any(each.plan.after_ms is not None for each in items):
            now = yield from store.schema.clock()
        requests = [each.request(now) for each in items]
        started = (yield from start_chains(store, requests, channel)) if requests else []
        earlier = sorted({each.id for each in started if each.deduplicated})
        records = (yield from store.chains.get(earlier)) if earlier else []
        known = {each.id: each for each in records}
        pairs = zip(items, started, strict=True)
        return [_answer(item, answer, known) for item, answer in pairs]

    return Write(op, due_types)


def first_of(write: Write[list[Chain]]) -> Write[Chain]:
    """Return the write of a single chain."""

    def op(store: Store, channel: str | None) -> Op[Chain]:
        (chain,) = yield from write.op(store, channel)
        return chain

    return Write(op, lambda chain: due_types([chain]))


def due_types(chains: Iterable[Chain]) -> set[str]:
    """Return the types of which something new may be due."""
    return {each.type for each in chains if each.state == "pending" and not each.deduplicated}


def _answer(item: Item, started: Started, known: dict[str, ChainRecord]) -> Chain:
    if not started.deduplicated:
        return new_chain(started, item.key, item.input)
    record = known.get(started.id)
    if record is None or record.type != item.plan.entry.name:
        raise InvalidId(
            f"{started.id} is the id of another job already", help="make a new id for each chain"
        )
    return chain_of(record, deduplicated=True)
