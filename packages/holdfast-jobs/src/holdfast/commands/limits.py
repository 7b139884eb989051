"""Commands on limits of the whole fleet: set them, let a key wait for a while, and see what they hold back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from holdfast.commands.change import Change, Effect
from holdfast.commands.explain import MAX_WORKERS
from holdfast.core.declared_limits import DeclaredLimits, declared_in_fleet
from holdfast.core.errors import InvalidOption, UnknownJobType, nearest
from holdfast.core.flow import MAX_ALLOWED, MAX_KEY_BYTES, MAX_PERIOD_MS, is_flow_key
from holdfast.core.instants import Instant
from holdfast.core.partitions import (
    LimitSetting,
    PartitionRecord,
    PartitionRule,
    by_id,
    every_key,
    partition_id,
    shared_partition,
    split_partition,
    unused_partition,
)
from holdfast.core.redaction import clean_text
from holdfast.notify.base import LOOK_EVERYWHERE, Hint
from holdfast.observe.metrics import LimitGauges
from holdfast.storage.operation import Op
from holdfast.storage.store import Store

UNSET = -1
"""Resets a number to the one in the code."""

MAX_KEYS = 1_000
"""So many keys of a type are read for the fullest ones."""

MAX_RATE = 1_000_000
MAX_WAIT_MS = 31 * 86_400_000

Scope = Literal["key", "each", "total"]


class LimitTarget(msgspec.Struct, frozen=True):
    """What a limit is set for: a key of a type, each of its keys, or the type or shared name as a whole.

    A name that types share is written `@name`. Without a key and a scope it is what the code limits, if that is one.
    """

    owner: str
    key: str | None = None
    scope: Scope | None = None

    def check(self) -> None:
        """Refuse what means no limit. Raises: InvalidOption."""
        if self.key is None:
            return
        if self.scope in ("each", "total"):
            raise InvalidOption(
                f"a key and {self.scope!r} were both given", help="give one of them"
            )
        if not is_flow_key(self.key):
            raise InvalidOption(
                f"{self.key[:40]!r} cannot be a key",
                help=f"a key has at most {MAX_KEY_BYTES} bytes and no NUL",
            )


class LimitChange(msgspec.Struct, frozen=True):
    """Numbers to set while workers run; None leaves one as it is, -1 returns to the code's own."""

    allowed: int | None = None
    rate: int | None = None
    period_ms: int | None = None

    def check(self) -> None:
        """Refuse numbers without meaning. Raises: InvalidOption."""
        if self.allowed is None and self.rate is None:
            raise InvalidOption("nothing to set", help="set a limit or a rate")
        if self.allowed not in (None, UNSET) and not 1 <= int(self.allowed or 0) <= MAX_ALLOWED:
            raise InvalidOption(
                f"a limit of {self.allowed} is not between 1 and {MAX_ALLOWED}",
                help="to stop a key for a while, use `holdfast limits rest`",
            )
        if self.rate in (None, UNSET):
            return
        if not 1 <= int(self.rate or 0) <= MAX_RATE:
            raise InvalidOption(f"a rate of {self.rate} is not between 1 and {MAX_RATE}")
        if not 100 <= (self.period_ms or 0) <= MAX_PERIOD_MS:
            raise InvalidOption("a rate needs a period from 100ms to 31d", help="write 100/1m")


class LimitFacts(msgspec.Struct, frozen=True):
    """One partition as people see it: what it lets through and holds back, and whether that was set at run time."""

    type: str
    key: str | None
    scope: Scope
    running: int
    allowed: int | None
    started: int
    rate: int | None
    period_ms: int | None
    waiting: int
    oldest_at: Instant | None
    paused_until: Instant | None
    reason: str | None
    is_set: bool
    now: Instant

    @property
    def is_paused(self) -> bool:
        """Whether it lets nothing through for a while."""
        return self.paused_until is not None and self.paused_until > self.now

    @property
    def is_in_use(self) -> bool:
        """Whether there are jobs of it, or numbers of its own."""
        return bool(self.running or self.waiting or self.oldest_at is not None or self.is_set)

    @property
    def is_full(self) -> bool:
        """Whether it holds work back."""
        if self.scope == "key" and not self.waiting:
            return False
        is_busy = self.allowed is not None and self.running >= self.allowed
        is_spent = self.rate is not None and self.started >= self.rate
        return is_busy or is_spent or self.is_paused


def set_limit(
    store: Store, target: LimitTarget, change: LimitChange, by: str | None
) -> Op[Change[LimitSetting]]:
    """Set numbers of a limit in the whole fleet. Raises: UnknownJobType, InvalidOption."""
    change.check()
    id = yield from find_limit(store, target)
    before = yield from _setting(store, target.owner, id)
    allowed = _merge(before.allowed, change.allowed)
    rate = _merge(before.rate, change.rate)
    period_ms = change.period_ms if change.rate not in (None, UNSET) else before.period_ms
    if allowed is None and rate is None and before.paused_until is None:
        yield from store.limits.clear(id)
    else:
        period = None if rate is None else period_ms
        yield from store.limits.set(id, allowed=allowed, rate=rate, period_ms=period, by=by)
    return (yield from _setting_change(store, target.owner, id, before))


def rest_limit(
    store: Store, target: LimitTarget, ms: int, reason: str | None, by: str | None
) -> Op[Change[LimitSetting]]:
    """Let nothing of a key start in the fleet for so long; 0 ends that. Raises: UnknownJobType, InvalidOption."""
    id = yield from find_rest(store, target, ms)
    before = yield from _setting(store, target.owner, id)
    # It is shown to whoever sees a job that waits for the key, and is in the audit with the setting.
    told = clean_text(reason) if reason else None
    yield from store.limits.rest(id, ms, told, by)
    return (yield from _setting_change(store, target.owner, id, before))


def find_limit(store: Store, target: LimitTarget) -> Op[str]:
    """Return the partition whose numbers are set. Raises: UnknownJobType, InvalidOption."""
    target.check()
    if target.key == "":
        raise InvalidOption("jobs without a key have no limit", help="name a key")
    return (yield from _partition_of(store, target))


def find_rest(store: Store, target: LimitTarget, ms: int) -> Op[str]:
    """Return the partition that is paused for so long. Raises: UnknownJobType, InvalidOption."""
    target.check()
    if not 0 <= ms <= MAX_WAIT_MS:
        raise InvalidOption("a key cannot be paused for longer than 31 days")
    if target.scope == "each" or (target.key is None and not target.owner.startswith("@")):
        raise InvalidOption(
            f"name the key of {target.owner} to pause",
            help=f"for all keys: `holdfast types pause {target.owner}`",
        )
    return (yield from _partition_of(store, target))


def _merge(before: int | None, given: int | None) -> int | None:
    if given is None:
        return before
    return None if given == UNSET else given


def _setting(store: Store, owner: str, id: str) -> Op[LimitSetting]:
    found = yield from store.limits.settings(None if owner.startswith("@") else owner)
    return next((each for each in found if each.id == id), LimitSetting(id))


def _setting_change(
    store: Store, owner: str, id: str, before: LimitSetting
) -> Op[Change[LimitSetting]]:
    after = yield from _setting(store, owner, id)
    hint = LOOK_EVERYWHERE if owner.startswith("@") else Hint("look", owner)
    return Change(after, [Effect(f"limit {partition_words(id)}", before, after)], [hint])


def partition_words(id: str) -> str:
    """Write a partition as people name it: `mail.send 42`, `each key of mail.send`, `mail.send`, `@openai`."""
    owner, key = split_partition(id)
    if id.startswith("*"):
        return f"each key of {owner}"
    if key is None:
        return id
    return f"{owner} {key}" if key else owner


def _partition_of(store: Store, target: LimitTarget) -> Op[str]:
    """Return the partition of a target, if a limit there has an effect. Raises: UnknownJobType, InvalidOption."""
    declared = yield from read_declared(store)
    owner = target.owner
    if owner.startswith("@"):
        names = {each.id for one in declared.values() for each in one.shared if each.id[0] == "@"}
        if owner not in names:
            raise InvalidOption(
                f"no live worker has a limit named {owner[1:61]!r}",
                help=nearest(owner, names) or "see `holdfast limits list`",
            )
        return shared_partition(owner[1:])
    return _partition_of_type(target, declared)


def _partition_of_type(target: LimitTarget, declared: dict[str, DeclaredLimits]) -> str:
    owner = target.owner
    known = declared.get(owner)
    if known is None:
        raise UnknownJobType(
            f"no live worker declares limits for {owner[:60]!r}",
            help=nearest(owner, declared)
            or f"declare them in code; for each worker: `holdfast types set {owner[:60]} --concurrency`",
        )
    if target.key is not None:
        if not known.by:
            raise InvalidOption(
                f"the limits of {owner} have no keys", help="omit the key, or add by= in code"
            )
        return partition_id(owner, target.key)
    scope = target.scope or _only_scope(known)
    if scope == "total" and known.total is None:
        raise InvalidOption(
            f"the code has no total limit for {owner}", help="add Limit(n), then set it here"
        )
    return owner if scope == "total" else every_key(owner)


def _only_scope(known: DeclaredLimits) -> Scope:
    if known.by and known.total is not None:
        raise InvalidOption(
            f"{known.type} has limits per {known.by} and in total", help="say which: each or total"
        )
    return "total" if known.total is not None else "each"


def read_declared(store: Store) -> Op[dict[str, DeclaredLimits]]:
    """Read what the types of the live workers declare."""
    workers = yield from store.workers.page(MAX_WORKERS, live=True)
    return declared_in_fleet(workers)


def read_limits(
    store: Store, type: str | None = None, max_keys: int = MAX_KEYS
) -> Op[list[LimitFacts]]:
    """Read what the limits of a type, or of all, let through and hold back: the fullest keys first.

    Of each type at most `max_keys` keys are read. Raises: UnknownJobType.
    """
    declared = yield from read_declared(store)
    if type is not None and type not in declared:
        raise UnknownJobType(
            f"no live worker declares limits for {type[:60]!r}",
            help=nearest(type, declared) or "see `holdfast limits list`",
        )
    wanted = sorted(declared) if type is None else [type]
    now = yield from store.schema.clock()
    named = [each for each in (yield from store.limits.settings()) if each.id.startswith("@")]
    found: list[LimitFacts] = []
    seen: set[str] = set()
    for name in wanted:
        settings = by_id([*named, *(yield from store.limits.settings(name))])
        fresh = [each for each in declared[name].shared if each.id not in seen]
        seen.update(each.id for each in fresh)
        for each in fresh:
            found.append((yield from _read_shared(store, declared[name], each.id, settings, now)))
        found += yield from _queues(store, declared[name], settings, now, max_keys)
    return found


def count_full_keys(
    store: Store, declared: Iterable[DeclaredLimits], now: Instant
) -> Op[dict[str, int]]:
    """Count the keys of each type that hold work back.

    Of each type at most MAX_KEYS are read, and of each key only its first jobs, where those that run are.
    """
    found: dict[str, int] = {}
    for each in declared:
        if each.by:
            settings = by_id((yield from store.limits.settings(each.type)))
            allowed = each.rule(partition_id(each.type, "?"), settings).allowed or 1
            queues = yield from _queues(store, each, settings, now, MAX_KEYS, max(100, 2 * allowed))
            found[each.type] = sum(each_key.is_full for each_key in queues)
    return found


def gauges_of(limits: Sequence[LimitFacts]) -> list[LimitGauges]:
    """Return what the limits of each type hold back."""
    found = []
    for type in sorted({each.type for each in limits}):
        mine = [each for each in limits if each.type == type]
        full = [each for each in mine if each.is_full]
        oldest = [each.now - each.oldest_at for each in full if each.oldest_at is not None]
        waiting = sum(each.waiting for each in full)
        found.append(LimitGauges(type, len(full), waiting, max(0, *oldest, 0)))
    return found


def _read_shared(
    store: Store,
    declared: DeclaredLimits,
    id: str,
    settings: Mapping[str, LimitSetting],
    now: Instant,
) -> Op[LimitFacts]:
    """Read the partition of a type as a whole, or of a name that types share."""
    rule = declared.rule(id, settings)
    records = yield from store.limits.shared([id], rule.period_ms or 0)
    own = settings.get(id, LimitSetting(id))
    return _facts(records[0] if records else unused_partition(own), rule, now, "total")


def _queues(
    store: Store,
    declared: DeclaredLimits,
    settings: Mapping[str, LimitSetting],
    now: Instant,
    max_keys: int,
    counted: int = 1_000,
) -> Op[list[LimitFacts]]:
    if not declared.by:
        return (yield from _paused_queue(store, declared.type, settings, now))
    every = declared.rule(partition_id(declared.type, "?"), settings)
    records = yield from store.limits.page(
        declared.type, max_keys, period_ms=every.period_ms or 0, max_count=counted
    )
    listed = {each.id for each in records}
    idle = [each for each in settings.values() if split_partition(each.id)[1] is not None]
    found = [
        _facts(each, declared.rule(each.id, settings), now, "key")
        for each in (*records, *(unused_partition(each) for each in idle if each.id not in listed))
    ]
    # Jobs without a key are bound by no limit, unless their handler said that none should start for a while.
    found = [each for each in found if each.is_paused or (each.key and each.is_in_use)]
    return sorted(
        found, key=lambda each: (not each.is_full, -each.waiting, -each.running, each.key or "")
    )


def _paused_queue(
    store: Store, type: str, settings: Mapping[str, LimitSetting], now: Instant
) -> Op[list[LimitFacts]]:
    """Read the queue of a type without keys, if a handler said that no job of it should start for a while."""
    id = partition_id(type, "")
    own = settings.get(id)
    if own is None or (own.paused_until or 0) <= now:
        return []
    records = yield from store.limits.page(type, 1)
    return [_facts(records[0] if records else unused_partition(own), PartitionRule(id), now, "key")]


def _facts(record: PartitionRecord, rule: PartitionRule, now: Instant, scope: Scope) -> LimitFacts:
    owner, key = split_partition(record.id)
    return LimitFacts(
        type=f"@{owner}" if record.id.startswith("@") else owner,
        key=key,
        scope=scope,
        running=record.running,
        allowed=rule.allowed,
        started=record.started,
        rate=rule.rate,
        period_ms=rule.period_ms,
        waiting=record.waiting,
        oldest_at=record.oldest_at,
        paused_until=record.paused_until,
        reason=record.reason,
        is_set=(record.allowed, record.rate) != (None, None),
        now=now,
    )
