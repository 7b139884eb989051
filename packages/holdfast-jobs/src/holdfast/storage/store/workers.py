"""Workers' presence, settings of types, totals and statistics over time, over named statements."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.core.instants import Instant
from holdfast.core.records import TypeSetting
from holdfast.core.statistics import (
    FinishedJob,
    QueueTotals,
    SeriesPoint,
    Timeouts,
    TypePace,
    TypeTotals,
    Wait,
    WaitStep,
)
from holdfast.core.worker_presence import SignAnswer, VanishedWorker, WorkerRecord, WorkerSign
from holdfast.storage.operation import Op, Statement, Value
from holdfast.storage.store.params import document, fetch, fetch_value, has_rows, record_of, texts


class WorkerStore:
    """Presence of workers, settings of types, totals."""

    def sign(self, sign: WorkerSign, now: Instant | None = None) -> Op[SignAnswer]:
        """Write presence and counters; return what the worker has to know. One statement."""
        rows = yield Statement("worker_put", {**msgspec.structs.asdict(sign), "now": now})
        return record_of(SignAnswer, rows[0])

    def stop(self, worker_id: str, counters: str, now: Instant | None = None) -> Op[None]:
        """Record that a worker has stopped. One statement."""
        yield Statement("worker_stop", {"id": worker_id, "counters": counters, "now": now})

    def drain(self, worker_id: str, now: Instant | None = None) -> Op[bool]:
        """Ask a worker to drain; False when there is no such live worker. One statement."""
        return has_rows("worker_drain", id=worker_id, now=now)

    def page(
        self,
        limit: int,
        *,
        live: bool = False,
        ids: Sequence[str] | None = None,
        now: Instant | None = None,
    ) -> Op[list[WorkerRecord]]:
        """Read workers, newest first: all, live ones, or these. One statement."""
        named = None if ids is None else texts(ids)
        return fetch(WorkerRecord, "worker_list", limit=limit, live=live, ids=named, now=now)

    def mark_vanished(self, now: Instant | None = None) -> Op[list[VanishedWorker]]:
        """Mark and return workers that stopped giving signs; each is returned to one caller. One statement."""
        return fetch(VanishedWorker, "worker_mark_vanished", now=now)

    def settings(self) -> Op[list[TypeSetting]]:
        """Read the settings changed at run time. One statement."""
        return fetch(TypeSetting, "type_setting_list")

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
        """Change settings of a type; None leaves a value, -1 takes it back to the code's own. One statement."""
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

    def totals(
        self, limit: int, now: Instant | None = None
    ) -> Op[tuple[QueueTotals, list[TypeTotals]]]:
        """Read totals of the whole and of each type; live counts stop at `limit`."""
        types = yield from self.type_totals(now)
        live = document([each.type for each in types if each.live > 0])
        rows = yield Statement("live_totals", {"types": live, "limit": limit, "now": now})
        running, stuck, blocked, due = rows[0]
        oldest = (each.oldest_due_at for each in types)
        whole = QueueTotals(
            live=sum(each.live for each in types),
            blocked=blocked,
            running=running,
            due=due,
            oldest_due_at=min((each for each in oldest if each is not None), default=None),
            stuck=stuck,
            completed=sum(each.completed for each in types),
            failed=sum(each.failed for each in types),
            cancelled=sum(each.cancelled for each in types),
            bounded=blocked >= limit or due >= limit,
        )
        return whole, types

    def type_totals(self, now: Instant | None = None) -> Op[list[TypeTotals]]:
        """Read totals per type. One statement."""
        return fetch(TypeTotals, "type_totals", now=now)

    def due(
        self, types: Sequence[str], limit: int, now: Instant | None = None
    ) -> Op[dict[str, int]]:
        """Count the due jobs of each of these types, up to `limit` of each. One statement."""
        return dict(
            (yield Statement("type_due", {"types": texts(types), "limit": limit, "now": now}))
        )

    def fold_tally(self, limit: int, now: Instant | None = None) -> Op[int]:
        """Fold at most `limit` tally rows together, the older the wider the step; return how many."""
        return fetch_value("tally_fold", limit=limit, now=now)


class StatisticsStore:
    """Statistics over time, from the tally and from the newest results; never from a count of all rows."""

    def series(
        self, span_ms: int, step_ms: int, now: Instant | None = None, *, type: str | None = None
    ) -> Op[list[SeriesPoint]]:
        """Read what happened in each step of the last span, of all types or of one, oldest first.

        Empty steps are left out. One statement.
        """
        span: dict[str, Value] = {"span_us": span_ms * 1000, "step_us": step_ms * 1000}
        return fetch(SeriesPoint, "figure_series", **span, type=type, now=now)

    def finished(self, type: str, limit: int, look: int) -> Op[list[FinishedJob]]:
        """Read the newest ended jobs of a type, at most `limit` among the newest `look` of all. One statement."""
        return fetch(FinishedJob, "figure_finished", type=type, limit=limit, look=look)

    def waits(self, steps: Sequence[WaitStep], look: int) -> Op[list[Wait]]:
        """Read how long ended jobs waited from due to started, at most `look` of each step. One statement."""
        return fetch(Wait, "figure_waits", rows=document(steps), look=look)

    def types(self, span_ms: int, now: Instant | None = None) -> Op[list[TypePace]]:
        """Read what each type ended within the last span, and how many of it run. One statement."""
        return fetch(TypePace, "figure_types", span_us=span_ms * 1000, now=now)

    def timeouts(self, span_ms: int, look: int, now: Instant | None = None) -> Op[list[Timeouts]]:
        """Count attempts that timed out within the last span, among the newest `look` failed ones. One statement."""
        return fetch(Timeouts, "figure_timeouts", span_us=span_ms * 1000, look=look, now=now)
