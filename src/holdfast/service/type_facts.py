"""Everything the database knows of job types, put together: totals, settings, and who handles them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from holdfast.core.duration import format_duration, spoken
from holdfast.core.model import Instant, TypeSetting
from holdfast.ops.why import LIVE_WITHIN_MS, MOST_WORKERS
from holdfast.service.times import rfc3339
from holdfast.storage.port import Store
from holdfast.storage.records import TypeTotals
from holdfast.storage.statement import Op


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
