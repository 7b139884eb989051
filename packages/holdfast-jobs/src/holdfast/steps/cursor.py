"""The position of a long loop, kept from attempt to attempt."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.core.codec import TypeCodec
from holdfast.core.steps import ClosedStep
from holdfast.steps.actions import StepPlan, WriteRecords

SAVED_EVERY_S = 1.0


class Cursor:
    """Where a loop is: `value`, and `set` to move it. Written at most once a second, and when an attempt ends."""

    def __init__(
        self,
        value: Any,
        codec: TypeCodec,
        make_row: Callable[[Any], ClosedStep],
        run: Callable[[StepPlan], Any],
        monotonic: Callable[[], float],
    ) -> None:
        """`make_row` makes the record of a position; `run` runs a plan as the handler's other calls are."""
        self._codec = codec
        self._make_row = make_row
        self._run = run
        self._monotonic = monotonic
        self._is_saved = True
        self._saved_at = monotonic()
        self.value = value

    def set(self, value: Any) -> Any:
        """Move it; await that in an async handler. Raises: OutputInvalid."""
        self._codec.encode(value)
        self.value, self._is_saved = value, False
        return self._run(self._save())

    def _save(self) -> StepPlan:
        now = self._monotonic()
        row = self.take_row() if now - self._saved_at >= SAVED_EVERY_S else None
        if row is not None:
            self._saved_at = now
            yield WriteRecords([row])

    def take_row(self) -> ClosedStep | None:
        """Return what is to be written, if it was moved since the last time."""
        if self._is_saved:
            return None
        self._is_saved = True
        return self._make_row(self.value)
