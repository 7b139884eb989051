"""Durable functions in SQLite: what is one statement in PostgreSQL is several here, under the file's write lock.

The transaction that appends a signal wakes those that wait for it, so there is nothing to route.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.instants import Instant
from holdfast.core.records import JobRef
from holdfast.core.steps import ClosedStep, NewSignal, NewStep, WrittenStep
from holdfast.storage.operation import Op, Row, Statement
from holdfast.storage.sqlite.limits import signal_returned
from holdfast.storage.store.params import document, fetch, resolve_now, texts
from holdfast.storage.store.steps import SignalStore, StepStore


def _wake(rows: Sequence[Row], now: Instant | None) -> Op[list[JobRef]]:
    """Signal the partitions of functions that were woken, of rows [job, type, gate, token]; return those now due."""
    due = [(id, type, gate) for id, type, gate, token in rows if token is None]
    if not due:
        return []
    return (yield from signal_returned(due, (yield from resolve_now(now))))


class SqliteStepStore(StepStore):
    """Records, written and ended in several statements."""

    def record(self, steps: Sequence[NewStep], now: Instant | None = None) -> Op[list[WrittenStep]]:
        written = yield from fetch(WrittenStep, "step_record", rows=document(steps), now=now)
        marked = [(each.job_id, each.token) for each in steps if each.marks]
        if marked:
            yield Statement("step_mark", {"rows": document(marked)})
        return written

    def append(self, step: NewStep, now: Instant | None = None) -> Op[list[WrittenStep]]:
        return self.record([step], now)

    def close(
        self, steps: Sequence[ClosedStep], now: Instant | None = None
    ) -> Op[list[WrittenStep]]:
        closed: list[ClosedStep] = []
        taken: dict[str, str] = {}
        given = {"rows": document(steps), "now": now}
        for place, signal_id, broadcast in (yield Statement("step_close_read", given)):
            step = steps[place]
            if signal_id is not None and not broadcast:
                if signal_id in taken:
                    continue
                taken[signal_id] = step.job_id
            closed.append(step)
        if not closed:
            return []
        if taken:
            yield Statement("signal_take", {"rows": document(list(taken.items()))})
        return (yield from fetch(WrittenStep, "step_close", rows=document(closed), now=now))

    def wake_parents(self, ids: Sequence[str], now: Instant | None = None) -> Op[list[JobRef]]:
        given = {"ids": texts(ids), "now": now}
        return (yield from _wake((yield Statement("step_wake_parents", given)), now))


class SqliteSignalStore(SignalStore):
    """Signals, routed where they are appended."""

    def append(
        self, signals: Sequence[NewSignal], channel: str | None = None, now: Instant | None = None
    ) -> Op[set[str]]:
        # There is no channel to notify on: other processes watch the file itself.
        rows = yield Statement("signal_append", {"rows": document(signals), "now": now})
        written = {row[0] for row in rows}
        if written:
            given = {"ids": texts(written), "now": now}
            yield from _wake((yield Statement("signal_wake", given)), now)
        return written

    def route(self, limit: int, now: Instant | None = None) -> Op[list[JobRef]]:
        yield from ()
        return []
