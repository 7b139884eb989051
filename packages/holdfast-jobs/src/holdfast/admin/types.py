"""Job types and event subscriptions: totals, settings, live workers that handle them; pause, resume, set, remove."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from holdfast.admin.access import Caller, NounAdmin
from holdfast.admin.jobs import Expected
from holdfast.admin.serializers import plain, require, rfc3339, version_of
from holdfast.commands.change import Change
from holdfast.commands.explain import MAX_WORKERS
from holdfast.commands.health import COUNTED_OF_TYPE
from holdfast.commands.limits import count_full_keys
from holdfast.commands.replay import REPLAY_LOOK, ReplayPage, replay_events
from holdfast.commands.start import MAX_SUBSCRIPTIONS, RemovedSubscription, remove_subscription
from holdfast.commands.workers import TypeChange, pause_all, pause_type, read_setting, set_type
from holdfast.core.declared_limits import declared_in_fleet
from holdfast.core.duration import format_duration, format_span
from holdfast.core.ids import instant_of
from holdfast.core.instants import Instant
from holdfast.core.records import TypeSetting
from holdfast.core.statistics import TypeTotals
from holdfast.core.subscriptions import Subscription, SubscriptionRecord
from holdfast.storage.operation import Op
from holdfast.storage.store import Store

LISTED_DUE = 100
"""A list that may be drawn every second counts the due jobs of each type up to here."""


class TypeFacts(msgspec.Struct, frozen=True):
    """One job type as the database knows it; `workers` counts the live ones that handle it.

    `full_keys` counts the keys whose limits hold jobs back, None where no limit is by key; `due` counts jobs up to
    `counted`; `on_failed` says whether its code declared such a function; `kept` how long it keeps its jobs, by state.
    """

    now: Instant
    totals: TypeTotals
    setting: TypeSetting
    workers: int
    limits: str | None = None
    full_keys: int | None = None
    due: int = 0
    counted: int = LISTED_DUE
    on_failed: bool = False
    kept: dict[str, str] = {}

    def as_json(self) -> dict[str, Any]:
        """Return the facts for programs."""
        own = {
            "due": self.due,
            "due_bounded": self.due >= self.counted,
            "workers": self.workers,
            "limits": self.limits,
            "full_keys": self.full_keys,
            "on_failed": self.on_failed,
            "kept": self.kept,
        }
        return {**plain(self.totals), **own, **plain(self.setting)}

    def as_record(self) -> dict[str, Any]:
        """Return the facts for a terminal."""
        due = self.totals.oldest_due_at
        return {
            **self.as_json(),
            "due": f"{self.due:,}{'+' if self.due >= self.counted else ''}",
            "oldest_due": None if due is None else format_span(self.now - due),
            "paused": self._pause_text(),
            "settings": self._settings(),
        }

    def _pause_text(self) -> str | None:
        setting = self.setting
        if not setting.paused:
            return None
        by = f"by {setting.paused_by}" if setting.paused_by else "yes"
        at = setting.paused_at
        return by if at is None else f"{by}, {format_span(self.now - at)}"

    def _settings(self) -> str | None:
        setting = self.setting
        parts = [
            f"lease {format_duration(setting.lease_ms)}" if setting.lease_ms else "",
            f"timeout {format_duration(setting.timeout_ms)}" if setting.timeout_ms else "",
            f"concurrency {setting.concurrency}" if setting.concurrency else "",
            f"attempts {setting.max_attempts}" if setting.max_attempts else "",
        ]
        return " · ".join(filter(None, parts)) or None


def type_facts(store: Store, only: str | None = None) -> Op[dict[str, TypeFacts]]:
    """Read what is known of every type that was ever started, handled or set; `only` of one, if its keys are full."""
    now = yield from store.schema.clock()
    totals = {each.type: each for each in (yield from store.workers.type_totals())}
    settings = {each.type: each for each in (yield from store.workers.settings())}
    everyone = yield from store.workers.page(MAX_WORKERS)
    live = yield from store.workers.page(MAX_WORKERS, live=True)
    handled = Counter(type for each in live for type in each.types)
    limits = declared_in_fleet(live)
    asked = [each for each in limits.values() if only in (None, each.type)]
    full = yield from count_full_keys(store, asked, now)
    counted = LISTED_DUE if only is None else COUNTED_OF_TYPE
    waiting = [
        name
        for name, each in totals.items()
        if each.oldest_due_at is not None and only in (None, name)
    ]
    due = yield from store.workers.due(waiting, counted)
    on_failed = yield from store.on_failed.types()
    kept: dict[str, dict[str, str]] = defaultdict(dict)
    for rule in (yield from store.keeps.rules()):
        kept[rule.type][rule.state] = format_duration(rule.keep_ms)
    names = {*totals, *settings, *handled, *(type for each in everyone for type in each.types)}
    return {
        name: TypeFacts(
            now,
            totals.get(name) or TypeTotals(name, 0, 0, 0, 0, None),
            settings.get(name) or TypeSetting(name),
            handled[name],
            limits[name].words if name in limits else None,
            full.get(name),
            due.get(name, 0),
            counted,
            name in on_failed,
            kept[name],
        )
        for name in sorted(names)
    }


class TypeAdmin(NounAdmin):
    """What can be asked about job types and done to them."""

    async def list(self, caller: Caller) -> list[TypeFacts]:
        """Read every type that was ever started, handled or set."""
        found = await self._gateway.read(caller, "type.list", type_facts)
        return [*found.values()]

    async def pause(self, caller: Caller, type: str, expected: Expected = None) -> dict[str, Any]:
        """Stop workers from taking jobs of a type. Raises: UnknownJobType, Changed."""
        return await self._pause(caller, type, True, expected)

    async def resume(self, caller: Caller, type: str, expected: Expected = None) -> dict[str, Any]:
        """Let workers take jobs of a type again. Raises: UnknownJobType, Changed."""
        return await self._pause(caller, type, False, expected)

    async def pause_all(self, caller: Caller, paused: bool) -> None:
        """Pause or resume everything."""
        action = "type.pause" if paused else "type.resume"
        await self._gateway.run(caller, action, lambda store: pause_all(store, paused, caller.name))

    async def set(
        self, caller: Caller, type: str, change: TypeChange, expected: Expected = None
    ) -> dict[str, Any]:
        """Change settings of a type. Raises: UnknownJobType, InvalidOption, Changed."""
        change.check()
        command = partial(set_type, type=type, change=change)
        return await self._change(caller, "type.set", type, expected, command)

    async def _pause(
        self, caller: Caller, type: str, paused: bool, expected: Expected
    ) -> dict[str, Any]:
        command = partial(pause_type, type=type, paused=paused, by=caller.name)
        action = "type.pause" if paused else "type.resume"
        return await self._change(caller, action, type, expected, command)

    async def _change(
        self,
        caller: Caller,
        action: str,
        type: str,
        expected: Expected,
        command: Callable[[Store], Op[Change[TypeSetting]]],
    ) -> dict[str, Any]:
        def op(store: Store) -> Op[Change[TypeSetting]]:
            if expected is not None:
                yield from read_setting(store, type)
                # The row is held until the change, so that the version cannot pass in between.
                yield from store.workers.set_type(type)
                require(expected, version_of(plain((yield from read_setting(store, type)))))
            return (yield from command(store))

        setting = await self._gateway.run(caller, action, op)
        return plain(setting)


class SubscriptionFacts(msgspec.Struct, frozen=True):
    """A subscription, how many live workers handle it, and how many jobs of it have not ended."""

    now: Instant
    record: SubscriptionRecord
    workers: int
    live: int

    def as_json(self) -> dict[str, Any]:
        """Return the facts for programs."""
        counts = {"workers": self.workers, "live": self.live}
        fields = plain(self.record)
        after = fields.pop("replay_after")
        replayed_to = None if after is None else rfc3339(instant_of(after) * 1000)
        return {"type": self.record.job_type, **fields, "replayed_to": replayed_to, **counts}


class SubscriptionAdmin(NounAdmin):
    """What can be asked about subscriptions and done to them."""

    async def list(self, caller: Caller) -> list[SubscriptionFacts]:
        """Read subscriptions, by event and handler."""
        return await self._gateway.read(caller, "subscription.list", _subscription_facts)

    async def replay(
        self,
        caller: Caller,
        subscription: Subscription,
        since: Instant | str,
        after: str | None,
        look: int = REPLAY_LOOK,
        dry_run: bool = False,
    ) -> ReplayPage:
        """Deliver one batch of stored events to a handler.

        Raises: SubscriptionNotFound, InvalidOption, InvalidDuration.
        """
        return await self._gateway.run(
            caller,
            "subscription.replay",
            lambda store: replay_events(store, subscription, since, after, look, dry_run),
        )

    async def remove(self, caller: Caller, event: str, handler: str) -> RemovedSubscription:
        """Stop delivering an event to a handler; what was delivered stays. Raises: SubscriptionNotFound."""
        return await self._gateway.run(
            caller, "subscription.remove", lambda store: remove_subscription(store, event, handler)
        )


def _subscription_facts(store: Store) -> Op[list[SubscriptionFacts]]:
    now = yield from store.schema.clock()
    records = yield from store.events.page(MAX_SUBSCRIPTIONS)
    workers = yield from store.workers.page(MAX_WORKERS, live=True)
    handled = Counter(type for each in workers for type in each.types)
    live = {each.type: each.live for each in (yield from store.workers.type_totals())}
    return [
        SubscriptionFacts(now, each, handled[each.job_type], live.get(each.job_type, 0))
        for each in records
    ]
