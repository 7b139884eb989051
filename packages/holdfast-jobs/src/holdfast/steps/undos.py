"""What undoes the steps of one durable function, and the plan that does so once the function has failed for good."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.core.errors import Aborted, Busy, LeaseLost
from holdfast.core.outcome import Snooze
from holdfast.core.steps import UNDO, NewStep, RecordedBefore, StepId
from holdfast.steps.actions import CallAtomic, CallFunction, StepOptions, StepPlan
from holdfast.steps.current import StepInfo
from holdfast.steps.step_history import FAILURE, StepHistory
from holdfast.worker.attempt import Attempt


class StepUndos:
    """The undos that the code has named for recorded steps, with what each is called with."""

    def __init__(
        self, attempt: Attempt, history: StepHistory, reach: Callable[[str, StepId | str], None]
    ) -> None:
        self._attempt = attempt
        self._history = history
        self._reach = reach
        self._known: dict[StepId, tuple[Callable[..., Any], Any, StepOptions]] = {}

    def add(
        self, id: StepId, function: Callable[..., Any], value: Any, options: StepOptions
    ) -> None:
        """Note what undoes a step, and what the step returned."""
        self._known[id] = function, value, options
        self._attempt.has_undos = True

    def are_all_known(self) -> bool:
        """Whether there is an undo for each step that is to be undone."""
        return all(each.id in self._known for each in self._history.with_undo())

    def plan(self, error: str) -> StepPlan:
        """Undo the recorded steps in reverse order of their ends; return why one could not be undone, or None.

        The error is recorded first: from then on the function only goes backwards, also after a crash.
        """
        if FAILURE not in self._history.records:
            yield self._history.write(
                [self._history.new(FAILURE, "failure", "failed", error=error)]
            )
        steps = sorted(self._history.with_undo(), key=lambda each: -each.position)
        for done, record in enumerate(steps):
            id = StepId(UNDO + record.name, record.key, record.nth)
            if id not in self._history.records:
                known = self._known.get(record.id)
                if known is None:
                    return (
                        f"{done} of {len(steps)} undone; the code has no undo for step {record.id}"
                    )
                function, value, options = known
                info = StepInfo(f"{self._attempt.claimed.id}/{id}", self._attempt.claimed.fence, 1)
                call = CallFunction(function, (value,), None, info)

                def new(_: Any, id: StepId = id) -> NewStep:
                    self._reach("before {} was recorded", id)
                    return self._history.new(id, "undo", "done")

                try:
                    if options.atomic:
                        row = yield CallAtomic(call, new, options.opens)
                        self._history.remember([row], {})
                    else:
                        yield call
                        yield self._history.write([new(None)])
                except RecordedBefore as found:
                    self._history.records[id] = found.record
                except (Busy, Snooze, Aborted, LeaseLost):
                    raise
                except Exception as raised:
                    text = self._history.describe(raised)
                    return f"{done} of {len(steps)} undone; undoing step {record.id} failed: {text}"
        return None
