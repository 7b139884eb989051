"""The outbox under the names of its first users: statistics and a tick by hand."""

from __future__ import annotations

from typing import Any, Protocol

from holdfast.admin.authorize import Caller, Gateway
from holdfast.admin.roles import check
from holdfast.admin.serializers import rfc3339
from holdfast.commands.change import Effect
from holdfast.commands.explain import LIVE_WITHIN_MS, MOST_WORKERS
from holdfast.commands.health import read_health
from holdfast.core.cycle import RunRecord
from holdfast.core.records import WorkerRecord
from holdfast.core.redaction import redact
from holdfast.scheduler.runner import TICK, TickSkipped, TickSummary, is_single_tick
from holdfast.settings import Settings
from holdfast.storage.operation import Op
from holdfast.storage.store import Store
from holdfast.worker.options import LARGEST_CLAIM

MOST_TICKS = 1_000


class Ticks(Protocol):
    """Whoever runs ticks in this process."""

    async def run_once(self) -> TickSummary | TickSkipped:
        """Run a tick unless one runs already."""


class LegacyStats:
    """Statistics of the outbox under its first names."""

    def __init__(self, gateway: Gateway, settings: Settings, ticks: Ticks) -> None:
        self._gateway = gateway
        self._settings = settings
        self._ticks = ticks

    async def stats(self, caller: Caller) -> dict[str, Any]:
        """Read queue, runtime and configuration; running shows as processing and completed as sent."""
        return await self._gateway.read(caller, "outbox.stats", self._read)

    async def run_once(self, caller: Caller) -> dict[str, Any]:
        """Run one tick in this process, unless one is running."""
        check(caller.principal, "outbox.run_once")
        answer = await self._ticks.run_once()
        if isinstance(answer, TickSkipped):
            return {"skipped": True, "reason": answer.reason}
        effect = Effect(f"run {answer.run_id}", None, {"processed": answer.total_processed})
        await self._gateway.record(caller, "outbox.run_once", effect)
        return {"summary": answer.as_dict()}

    def _read(self, store: Store) -> Op[dict[str, Any]]:
        health = yield from read_health(store)
        totals = health.totals
        workers = yield from store.workers.page(MOST_WORKERS, LIVE_WITHIN_MS)
        ticks = yield from store.runs.page(MOST_TICKS, LIVE_WITHIN_MS, TICK)
        return {
            "generated_at": rfc3339(health.now),
            "queue": {
                "total": totals.live + totals.completed + totals.failed + totals.cancelled,
                "due_now": totals.due,
                "due_now_is_a_lower_bound": totals.bounded,
                "oldest_pending_age_seconds": health.oldest_us / 1_000_000,
                "stuck_processing": totals.stuck,
                "pending": max(0, totals.live - totals.running),
                "processing": totals.running,
                "sent": totals.completed,
                "failed": totals.failed,
            },
            "runtime": _runtime(workers, ticks),
            "config": self._config(),
        }

    def _config(self) -> dict[str, int]:
        worker = self._settings.embedded
        return {
            "poll_ms": worker.poll_ms,
            "batch_size": worker.batch_size or LARGEST_CLAIM,
            "max_attempts": worker.max_attempts,
            "processing_timeout_ms": worker.processing_timeout_ms,
            "retry_base_ms": worker.retry_base_ms,
            "retry_max_ms": worker.retry_max_ms,
        }


def _runtime(workers: list[WorkerRecord], ticks: list[RunRecord]) -> dict[str, Any]:
    """Sum up what the live workers did since their start, and the last single ticks, by hand or by cron."""
    counted = [each.counters for each in workers]
    counted += [each.counters.get("counters", {}) for each in ticks if is_single_tick(each.worker)]

    def total(counter: str) -> int:
        return sum(each.get(counter, 0) for each in counted)

    troubled = [each for each in workers if each.last_error]
    latest = max(troubled, key=lambda each: each.seen_at, default=None)
    return {
        "is_running": bool(workers),
        "ticks_total": total("ticks"),
        "processed_total": total("processed"),
        "retried_total": total("retried"),
        "dead_letter_total": total("dead_letters"),
        "recovered_stuck_total": total("recovered"),
        "last_error": redact(latest.last_error or "") if latest else None,
    }
