"""Limits of the whole fleet: what they let through and hold back, and setting them at run time."""

from __future__ import annotations

import builtins
from typing import Any

from holdfast.admin.access import Caller, NounAdmin
from holdfast.admin.serializers import plain, rfc3339
from holdfast.commands.limits import (
    MAX_KEYS,
    UNSET,
    LimitChange,
    LimitFacts,
    LimitTarget,
    read_limits,
    rest_limit,
    set_limit,
)
from holdfast.core.duration import format_duration, format_span, milliseconds
from holdfast.core.errors import InvalidOption
from holdfast.storage.operation import Op
from holdfast.storage.store import Store

DEFAULT = "default"
"""Returns to the number in the code."""


class LimitAdmin(NounAdmin):
    """What can be asked about limits and done to them."""

    async def list(
        self,
        caller: Caller,
        type: str | None = None,
        *,
        full: bool = False,
        limit: int = 100,
        keys: int = MAX_KEYS,
    ) -> list[LimitFacts]:
        """Read limits, the fullest of so many keys of each type first; with `full` only what holds work back.

        Raises: UnknownJobType.
        """

        def op(store: Store) -> Op[builtins.list[LimitFacts]]:
            found = yield from read_limits(store, type, keys)
            return [each for each in found if each.is_full or not full][:limit]

        return await self._gateway.read(caller, "limit.list", op)

    async def set(self, caller: Caller, target: LimitTarget, change: LimitChange) -> dict[str, Any]:
        """Set numbers of a limit. Raises: UnknownJobType, InvalidOption."""
        setting = await self._gateway.run(
            caller, "limit.set", lambda store: set_limit(store, target, change, caller.name)
        )
        return plain(setting)

    async def rest(self, caller: Caller, target: LimitTarget, ms: int) -> dict[str, Any]:
        """Let nothing of a key start for so long; 0 ends that. Raises: UnknownJobType, InvalidOption."""
        setting = await self._gateway.run(
            caller,
            "limit.rest",
            lambda store: rest_limit(store, target, ms, caller.reason, caller.name),
        )
        return plain(setting)


def shown_limit(facts: LimitFacts) -> dict[str, Any]:
    """Return a limit for programs."""
    return {
        "type": facts.type,
        "key": facts.key,
        "scope": facts.scope,
        "running": facts.running,
        "allowed": facts.allowed,
        "started": facts.started if facts.rate is not None else None,
        "rate": written_rate(facts),
        "waiting": facts.waiting if facts.scope == "key" else None,
        "oldest_at": rfc3339(facts.oldest_at),
        "paused_until": rfc3339(facts.paused_until) if facts.is_paused else None,
        "reason": facts.reason if facts.is_paused else None,
        "full": facts.is_full,
        "set": facts.is_set,
    }


def limit_record(facts: LimitFacts) -> dict[str, Any]:
    """Return a limit for a terminal or a page."""
    rate, oldest = written_rate(facts), facts.oldest_at
    rests = format_span((facts.paused_until or 0) - facts.now) if facts.is_paused else None
    return {
        **shown_limit(facts),
        "key": (facts.key or "(no key)") if facts.scope == "key" else "(all)",
        "running": f"{facts.running} of {facts.allowed}" if facts.allowed else str(facts.running),
        "started": f"{facts.started} of {rate}" if rate else None,
        "oldest": format_span(facts.now - oldest) if oldest is not None and facts.waiting else None,
        "paused": f"{rests}{f': {facts.reason}' if facts.reason else ''}" if rests else None,
        "own": "yes" if facts.is_set else None,
    }


def written_rate(facts: LimitFacts) -> str | None:
    """Write the rate of a limit as `100/1m`."""
    if facts.rate is None:
        return None
    return f"{facts.rate}/{format_duration(facts.period_ms or 0)}"


def parse_rate(text: str) -> tuple[int, int]:
    """Read `100/1m` as a number and a period in milliseconds. Raises: InvalidOption, InvalidDuration."""
    number, mark, period = text.partition("/")
    if not mark or not (number.isascii() and number.isdigit() and len(number) < 10):
        raise InvalidOption(f"{text[:40]!r} is not a rate", help="write it as 100/1m")
    unit = period if period[:1].isdigit() else f"1{period}"
    return int(number), milliseconds(unit)


def read_change(limit: str | None, rate: str | None) -> LimitChange:
    """Read numbers as people write them, `default` for the code's own. Raises: InvalidOption, InvalidDuration."""
    allowed = None if limit is None else UNSET if limit == DEFAULT else _parse_whole(limit)
    number, period_ms = None, None
    if rate is not None:
        number, period_ms = (UNSET, None) if rate == DEFAULT else parse_rate(rate)
    change = LimitChange(allowed, number, period_ms)
    change.check()
    return change


def _parse_whole(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise InvalidOption(f"{text[:20]!r} is neither a number nor {DEFAULT!r}")
    return int(text)
