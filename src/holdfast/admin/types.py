"""Job types for HTTP, pages and the command line: totals, settings, live workers; pause, resume, set."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from holdfast.admin.authorize import Caller, Gateway
from holdfast.admin.jobs import Expected
from holdfast.admin.serializers import plain, require, rfc3339, version_of
from holdfast.commands.change import Change
from holdfast.commands.explain import LIVE_WITHIN_MS, MOST_WORKERS
from holdfast.commands.workers import TypeChange, pause_all, pause_type, read_setting, set_type
from holdfast.core.duration import format_duration, spoken
from holdfast.core.records import Instant, TypePace, TypeSetting, TypeTotals
from holdfast.storage.operation import Op
from holdfast.storage.store import Store


class TypeFacts(msgspec.Struct, frozen=True):
    """One job type as the database knows it; `workers` counts the live ones that handle it."""

    now: Instant
    totals: TypeTotals
    setting: TypeSetting
    workers: int

    def as_json(self) -> dict[str, Any]:
        """Return the facts for programs."""
        setting = self.setting
        return {
            "type": self.totals.type,
            "live": self.totals.live,
            "oldest_due_at": rfc3339(self.totals.oldest_due_at),
            "completed": self.totals.completed,
            "failed": self.totals.failed,
            "cancelled": self.totals.cancelled,
            "workers": self.workers,
            "paused": setting.paused,
            "paused_by": setting.paused_by,
            "paused_at": rfc3339(setting.paused_at),
            "lease_ms": setting.lease_ms,
            "timeout_ms": setting.timeout_ms,
            "concurrency": setting.concurrency,
            "max_attempts": setting.max_attempts,
        }

    def as_record(self) -> dict[str, Any]:
        """Return the facts for a terminal."""
        due = self.totals.oldest_due_at
        return {
            **self.as_json(),
            "oldest_due": None if due is None else spoken(self.now - due),
            "paused": self._paused(),
            "settings": self._settings(),
        }

    def _paused(self) -> str | None:
        setting = self.setting
        if not setting.paused:
            return None
        by = f"by {setting.paused_by}" if setting.paused_by else "yes"
        at = setting.paused_at
        return by if at is None else f"{by}, {spoken(self.now - at)}"

    def _settings(self) -> str | None:
        setting = self.setting
        parts = [
            f"lease {format_duration(setting.lease_ms)}" if setting.lease_ms else "",
            f"timeout {format_duration(setting.timeout_ms)}" if setting.timeout_ms else "",
            f"concurrency {setting.concurrency}" if setting.concurrency else "",
            f"attempts {setting.max_attempts}" if setting.max_attempts else "",
        ]
        return " · ".join(filter(None, parts)) or None


def type_facts(store: Store) -> Op[dict[str, TypeFacts]]:
    """Read what is known of every type that was ever started, handled or set."""
    now = yield from store.schema.clock()
    totals = {each.type: each for each in (yield from store.workers.type_totals())}
    settings = {each.type: each for each in (yield from store.workers.settings())}
    everyone = yield from store.workers.page(MOST_WORKERS)
    living = yield from store.workers.page(MOST_WORKERS, LIVE_WITHIN_MS)
    handled = Counter(type for each in living for type in each.types)
    names = {*totals, *settings, *(type for each in everyone for type in each.types)}
    return {
        name: TypeFacts(
            now,
            totals.get(name) or TypeTotals(name, 0, 0, 0, 0, None),
            settings.get(name) or TypeSetting(name),
            handled[name],
        )
        for name in sorted(names)
    }


PACE_MS = 300_000
"""Rates cover the last five minutes: long enough to be steady, short enough to be current."""


class TypeAdmin:
    """What can be asked about job types and done to them."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def list(self, caller: Caller) -> list[TypeFacts]:
        """Read every type that was ever started, handled or set."""
        found = await self._gateway.read(caller, "type.list", type_facts)
        return [*found.values()]

    async def paces(self, caller: Caller) -> dict[str, TypePace]:
        """Read how much of each type ended within the last minutes, and how many run."""
        found = await self._gateway.read(
            caller, "type.list", lambda store: store.statistics.types(PACE_MS)
        )
        return {each.type: each for each in found}

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
                setting = yield from read_setting(store, type)
                require(expected, version_of(plain(setting)))
            return (yield from command(store))

        setting = await self._gateway.run(caller, action, op)
        return plain(setting)
