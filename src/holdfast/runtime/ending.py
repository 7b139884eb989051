"""How a run of a cycle ended, and the one transaction that writes it down."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Literal

from holdfast.core.cleaning import clean_error, words_of
from holdfast.core.cycle import RETRY_BASE_MS, CycleSpec, RunOutcome, retry_pause_ms
from holdfast.core.errors import Aborted
from holdfast.core.model import Instant
from holdfast.ops.cycle import complete_slot, fail_slot
from holdfast.runtime.cycle_run import CycleRun
from holdfast.runtime.handling import Abandoned, Handled
from holdfast.runtime.keeper import counters_text
from holdfast.storage.port import Store
from holdfast.storage.statement import Op

AT_ONCE_MS = 0


@dataclass(frozen=True, slots=True)
class Ending:
    """The outcome of a run; `pause_ms` is how long its slot rests, None ends the slot for good."""

    outcome: Literal["completed", "failed", "aborted"]
    error: str | None = None
    pause_ms: int | None = None

    @classmethod
    def of(cls, run: CycleRun, handled: Handled, spec: CycleSpec) -> Ending:
        """Judge a run by how its handler ended and what it was told."""
        reason = run.abort_reason
        if reason in ("lock_lost", "slot_lost"):
            return cls("aborted", f"aborted: {reason}", AT_ONCE_MS)
        error = handled.error
        pause_ms = None if run.attempt >= spec.attempts else retry_pause_ms(run.attempt)
        if isinstance(error, Abandoned):
            text = f"aborted: {reason}; {error}, and was abandoned"
            return cls("aborted", text, RETRY_BASE_MS if reason == "shutdown" else pause_ms)
        if error is None:
            return cls("completed")
        if reason == "shutdown" and isinstance(error, asyncio.CancelledError | Aborted):
            return cls("aborted", "aborted: shutdown", AT_ONCE_MS)
        if reason == "timeout" and isinstance(error, asyncio.CancelledError | Aborted):
            return cls("aborted", "aborted: timeout", pause_ms)
        return cls("failed", clean_error(type(error).__name__, words_of(error)), pause_ms)


def end_run(
    store: Store, run: CycleRun, ending: Ending, now: Instant | None = None
) -> Op[RunOutcome]:
    """Write down how a run ended; a slot that was lost makes it aborted, whatever the handler did."""
    counters = counters_text(run)
    if run.held is None:
        yield from store.runs.finish(run.run_id, ending.outcome, counters, ending.error, now)
        return ending.outcome
    if ending.outcome == "completed":
        accepted = yield from complete_slot(store, run.held, counters, now)
        return "completed" if accepted else "aborted"
    error = ending.error or ""
    yield from fail_slot(store, run.held, ending.outcome, counters, error, ending.pause_ms, now)
    return ending.outcome
