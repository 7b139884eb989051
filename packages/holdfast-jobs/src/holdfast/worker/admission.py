"""Admission: whether handlers may begin, and jobs be claimed, given how much is not recorded yet."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.worker.attempt import Attempt
from holdfast.worker.worker_context import WorkerContext

if TYPE_CHECKING:
    from holdfast.worker.completer import PendingOutcome

UNRECORDED_MAX = 1_000
"""With so many outcomes unrecorded, or one for so long, nothing new begins: its run would be lost if this process
died."""
UNRECORDED_MAX_S = 1.5
FLUSHES_AHEAD = 3
"""Handlers begin only while what they leave unrecorded is less than so many flushes like the last ones, or than there
are slots: few have run in vain when flushes no longer return, as without a synchronous standby."""
BEGUN_PER_SLOT = 2
"""Where a standby is awaited, at most so many for each slot run or are unrecorded."""
QUICK_S = 0.004
"""Handlers that take less are held only to `FLUSHES_AHEAD`: two for each slot between two flushes would slow them down
several times."""


class Admission:
    """Told of what runs, is to be written and was flushed, it says what may begin. On the loop."""

    def __init__(self, context: WorkerContext) -> None:
        self.running: set[Attempt] = set()
        self.unrecorded = 0
        self._stopping = context.stop.begun
        self._urgent_flushes = context.wakes.urgent_flushes
        self._monotonic = context.clock.monotonic
        self._unwritten = 0
        self._smallest_window = self._window = context.options.slots
        largest_call = max((each.batch or 1 for each in context.types.values()), default=1)
        self._most_begun = BEGUN_PER_SLOT * context.options.slots * largest_call
        self._awaits_standby = self._is_strict = False
        self._late_at = math.inf
        self._was_behind = False

    def is_full(self) -> bool:
        """Whether no handler should begin; ask `has_caught_up` when that may be over."""
        # The drain closes the backlog some turns of the loop after the word to stop.
        if self._stopping.is_set():
            return True
        if self._unwritten >= self._window or (
            self._is_strict and self._unwritten + len(self.running) >= self._most_begun
        ):
            self._was_behind = True
            self._urgent_flushes.set()
            return True
        return self.is_behind()

    def is_behind(self) -> bool:
        """Whether nothing should be claimed, either."""
        if self.unrecorded < UNRECORDED_MAX and (
            self._late_at == math.inf or self._monotonic() < self._late_at
        ):
            return False
        self._was_behind = True
        return True

    def has_caught_up(self) -> bool:
        """Whether what was held back may go on now; says so once."""
        if self._was_behind and not self.is_full():
            self._was_behind = False
            return True
        return False

    def await_standby(self, is_awaited: bool) -> None:
        """Note whether the server's commits wait for a standby."""
        if self._awaits_standby != is_awaited:
            self._awaits_standby = self._is_strict = is_awaited

    def note_pending(self, since: float) -> None:
        """Note an outcome that is to be written."""
        if self._late_at == math.inf:
            self._late_at = since + UNRECORDED_MAX_S
        self._unwritten += 1

    def note_flushed(self, batch: Sequence[PendingOutcome]) -> None:
        """Note a flush that returned."""
        self._window = max(self._smallest_window, FLUSHES_AHEAD * len(batch), self._window // 2)
        if self._awaits_standby:
            self._note_pace(batch)

    def note_left(self, pending: Sequence[PendingOutcome]) -> None:
        """Note what is left to be written after a flush, or a failure of one."""
        self._unwritten = len(pending)
        self._late_at = pending[0].since + UNRECORDED_MAX_S if pending else math.inf

    def _note_pace(self, batch: Sequence[PendingOutcome]) -> None:
        """Be strict unless most handlers were quicker than flushes are."""
        seconds = [
            each.attempt.ended_at - each.attempt.started_at
            for each in batch
            if each.attempt.started_at is not None and each.attempt.ended_at is not None
        ]
        if seconds:
            self._is_strict = 2 * sum(each >= QUICK_S for each in seconds) >= len(seconds)
