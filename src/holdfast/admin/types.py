"""Everything the database knows of job types, put together: totals, settings, and who handles them.

Job types: what is known of them, pausing and setting them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec

from holdfast.admin.authorize import Caller, Change, Desk, Effect
from holdfast.admin.etags import require, version_of
from holdfast.admin.jobs import Expected
from holdfast.admin.serializers import plain, rfc3339
from holdfast.commands.explain import LIVE_WITHIN_MS, MOST_WORKERS
from holdfast.core.duration import format_duration, spoken
from holdfast.core.errors import InvalidOption, UnknownJobType
from holdfast.core.records import Instant, TypePace, TypeSetting, TypeTotals
from holdfast.notify.base import LOOK_EVERYWHERE, Hint
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
        """Return the facts for people."""
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


UNSET = -1
"""Takes a setting back to the code's own."""

PACE_MS = 300_000
"""Rates are told of the last five minutes: long enough to be steady, short enough to be now."""

_LONGEST_MS = 86_400_000
_MOST = 1_000_000


class TypeChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings to be changed while workers run; None leaves a value, -1 takes it back to the code's own."""

    lease_ms: int | None = None
    timeout_ms: int | None = None
    concurrency: int | None = None
    max_attempts: int | None = None

    def check(self) -> None:
        """Refuse values without meaning. Raises: InvalidOption."""
        fields = msgspec.structs.asdict(self)
        given = {name: value for name, value in fields.items() if value is not None}
        if not given:
            raise InvalidOption("nothing is to be set")
        for name, value in given.items():
            most = _LONGEST_MS if name.endswith("_ms") else _MOST
            if value != UNSET and not 1 <= value <= most:
                raise InvalidOption(f"{name}={value} is not between 1 and {most}")
        if self.lease_ms is not None and 0 <= self.lease_ms < 100:
            raise InvalidOption(f"a lease of {self.lease_ms} ms is too short, the least is 100")


class TypeDesk:
    """What can be asked about job types and done to them."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def list(self, caller: Caller) -> list[TypeFacts]:
        """Read every type that was ever started, handled or set."""
        found = await self._desk.read(caller, "type.list", type_facts)
        return [*found.values()]

    async def paces(self, caller: Caller) -> dict[str, TypePace]:
        """Read how much of each type ended within the last minutes, and how many run."""
        found = await self._desk.read(
            caller, "type.list", lambda store: store.statistics.types(PACE_MS)
        )
        return {each.type: each for each in found}

    async def pause(self, caller: Caller, type: str, expected: Expected = None) -> dict[str, Any]:
        """Let workers take no more of a type. Raises: UnknownJobType, Changed."""
        return await self._switch(caller, type, True, expected)

    async def resume(self, caller: Caller, type: str, expected: Expected = None) -> dict[str, Any]:
        """Let workers take a type again. Raises: UnknownJobType, Changed."""
        return await self._switch(caller, type, False, expected)

    async def pause_all(self, caller: Caller, paused: bool) -> None:
        """Pause or resume everything."""

        def op(store: Store) -> Op[Change]:
            before = yield from store.schema.identity()
            yield from store.schema.pause(paused, caller.name)
            was = {"paused": before.paused} if before else None
            effect = Effect("everything", was, {"paused": paused})
            return Change(None, [effect], [LOOK_EVERYWHERE])

        await self._desk.change(caller, "type.pause" if paused else "type.resume", op)

    async def set(
        self, caller: Caller, type: str, change: TypeChange, expected: Expected = None
    ) -> dict[str, Any]:
        """Change settings of a type. Raises: UnknownJobType, InvalidOption, Changed."""
        change.check()
        fields = msgspec.structs.asdict(change)
        return await self._change(
            caller, "type.set", type, expected, lambda store: store.workers.set_type(type, **fields)
        )

    async def _switch(
        self, caller: Caller, type: str, paused: bool, expected: Expected
    ) -> dict[str, Any]:
        action = "type.pause" if paused else "type.resume"
        return await self._change(
            caller,
            action,
            type,
            expected,
            lambda store: store.workers.set_type(type, paused=paused, by=caller.name),
        )

    async def _change(
        self,
        caller: Caller,
        action: str,
        type: str,
        expected: Expected,
        write: Callable[[Store], Op[None]],
    ) -> dict[str, Any]:
        def op(store: Store) -> Op[Change]:
            known = yield from type_facts(store)
            if type not in known:
                raise UnknownJobType(f"the database has not seen the type {type[:60]!r}")
            before = plain(known[type].setting)
            require(expected, version_of(before))
            yield from write(store)
            after = plain((yield from _setting(store, type)))
            return Change(after, [Effect(f"type {type}", before, after)], [Hint("look", type)])

        answer: dict[str, Any] = await self._desk.change(caller, action, op)
        return answer


def _setting(store: Store, type: str) -> Op[TypeSetting]:
    settings = yield from store.workers.settings()
    return next((each for each in settings if each.type == type), TypeSetting(type))
