"""Presence of workers, settings of types and totals, over named statements."""

from __future__ import annotations

import msgspec

from holdfast.core.model import Instant, QueueTotals, TypeSetting, WorkerRecord
from holdfast.storage.records import TypeTotals, VanishedWorker, WorkerSign
from holdfast.storage.statement import Op, Row, Statement


def _worker(row: Row) -> WorkerRecord:
    values = list(row)
    values[6], values[11] = msgspec.json.decode(row[6]), msgspec.json.decode(row[11])
    values[10] = bool(row[10])
    return WorkerRecord(*values)


def _setting(row: Row) -> TypeSetting:
    return TypeSetting(row[0], bool(row[1]), *row[2:])


class Workers:
    """See `storage.port.WorkerStore`."""

    def sign(self, sign: WorkerSign, now: Instant | None = None) -> Op[bool]:
        rows = yield Statement("worker_put", {**msgspec.structs.asdict(sign), "now": now})
        return bool(rows[0][0])

    def stop(self, worker_id: str, counters: str, now: Instant | None = None) -> Op[None]:
        yield Statement("worker_stop", {"id": worker_id, "counters": counters, "now": now})

    def drain(self, worker_id: str) -> Op[bool]:
        rows = yield Statement("worker_drain", {"id": worker_id})
        return bool(rows)

    def page(
        self, limit: int, live_within_ms: int | None = None, now: Instant | None = None
    ) -> Op[list[WorkerRecord]]:
        rows = yield Statement(
            "worker_list",
            {
                "limit": limit,
                "live": live_within_ms is not None,
                "grace_ms": live_within_ms or 0,
                "now": now,
            },
        )
        return [_worker(row) for row in rows]

    def vanished(self, grace_ms: int, now: Instant | None = None) -> Op[list[VanishedWorker]]:
        rows = yield Statement("worker_vanished", {"grace_ms": grace_ms, "now": now})
        return [VanishedWorker(*row) for row in rows]

    def settings(self) -> Op[list[TypeSetting]]:
        rows = yield Statement("type_setting_list", {})
        return [_setting(row) for row in rows]

    def set_type(
        self,
        type: str,
        *,
        paused: bool | None = None,
        by: str | None = None,
        lease_ms: int | None = None,
        timeout_ms: int | None = None,
        concurrency: int | None = None,
        max_attempts: int | None = None,
        now: Instant | None = None,
    ) -> Op[None]:
        yield Statement(
            "type_setting_put",
            {
                "type": type,
                "paused": paused,
                "by": by,
                "lease_ms": lease_ms,
                "timeout_ms": timeout_ms,
                "concurrency": concurrency,
                "max_attempts": max_attempts,
                "now": now,
            },
        )

    def totals(self, limit: int, now: Instant | None = None) -> Op[QueueTotals]:
        sums = (yield Statement("totals", {}))[0]
        live = (yield Statement("live_totals", {"limit": limit, "now": now}))[0]
        return QueueTotals(
            live=sums[0],
            blocked=live[2],
            running=live[0],
            due=live[3],
            oldest_due_at=live[4],
            stuck=live[1],
            completed=sums[1],
            failed=sums[2],
            cancelled=sums[3],
            bounded=live[2] >= limit or live[3] >= limit,
        )

    def type_totals(self, now: Instant | None = None) -> Op[list[TypeTotals]]:
        rows = yield Statement("type_totals", {"now": now})
        return [TypeTotals(*row) for row in rows]

    def fold_tally(self, limit: int, now: Instant | None = None) -> Op[int]:
        rows = yield Statement("tally_fold", {"limit": limit, "now": now})
        return int(rows[0][0])
