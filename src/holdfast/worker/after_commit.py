"""What a worker does when an attempt's end is known: it tells, it counts, it looks for what comes next."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast.commands.blockers import FanIn
from holdfast.commands.finish import FinishReport
from holdfast.core.records import Finish, Stand
from holdfast.notify.base import Hint
from holdfast.worker.attempt import LOST, Attempt, lost_because
from holdfast.worker.claimer import Claimer
from holdfast.worker.completer import Completer
from holdfast.worker.context import Workplace
from holdfast.worker.notifications import Hints
from holdfast.worker.resolve_outcome import finish_of


class Records:
    """Hears from the completer after each commit. On the loop."""

    def __init__(self, place: Workplace, claimer: Claimer, hints: Hints) -> None:
        self._place = place
        self._claimer = claimer
        self._hints = hints
        self._ends_by_itself = place.options.stop_when_idle or place.options.max_items is not None

    def accepted(self, attempt: Attempt, finish: Finish) -> None:
        """An attempt's end is recorded."""
        self._place.telling.accepted(attempt, finish)
        match finish.kind:
            case "continue" if finish.next is not None:
                self._claimer.hint(finish.next.type)
                self._hints.soon(Hint("due", finish.next.type))
            case "retry" | "snooze":
                # The time of the next due job may be another than the claimer believes.
                self._claimer.nudge()
            case "release":
                # It keeps its place, which lies before everybody's mark.
                self._claimer.hint(attempt.type.name, from_the_start=True)
                self._hints.soon(Hint("look", attempt.type.name))
            case _:
                self._hints.ended(attempt.claimed.chain_id)
        if self._ends_by_itself:
            self._claimer.nudge()

    def refused(self, attempt: Attempt, stand: Stand) -> None:
        """An attempt's end was not accepted, because its token is void."""
        self._place.telling.refused(attempt, lost_because(stand) or "already_completed")

    def over(self, chains: Sequence[str], fan_in: FanIn) -> None:
        """Chains ended that no attempt of ours has ended."""
        for each in chains:
            self._hints.ended(each)
        self.opened(fan_in)

    def opened(self, fan_in: FanIn) -> None:
        """The end of awaited chains opened other jobs."""
        self._place.telling.unblocked(fan_in.opened)
        for type in {each.type for each in fan_in.opened}:
            self._claimer.hint(type)
            self._hints.soon(Hint("due", type))
        for each in fan_in.failed:
            self._hints.ended(each.chain_id)


class Office:
    """Where slots report what they did; see `slots.Office`."""

    def __init__(
        self, place: Workplace, records: Records, completer: Completer, claimer: Claimer
    ) -> None:
        self._place = place
        self._records = records
        self._claimer = claimer
        self.submit = completer.submit
        self.ended = claimer.ended

    def committed(self, attempt: Attempt, finish: Finish, report: FinishReport) -> None:
        """The end was recorded in the handler's own transaction."""
        self._place.holdings.end([attempt])
        self._records.accepted(attempt, finish)
        self._records.opened(report.fan_in)

    def too_late(self, attempt: Attempt) -> None:
        """The handler had an answer, but no longer the right to give it."""
        self._place.holdings.lose(attempt)
        self._place.telling.refused(attempt, attempt.abort_reason or "taken_by_another_worker")

    def give_back(self, attempts: Iterable[Attempt]) -> int:
        """Give back what no slot has begun, without costing an attempt; return how many were still ours to give."""
        count = 0
        for attempt in attempts:
            self._claimer.returned(attempt)
            if attempt.abort_reason not in LOST and attempt.take_ending("slot"):
                self.submit(attempt, finish_of(attempt, self._place.id, "release"))
                count += 1
        return count

    def busy(self, attempt: Attempt, seconds: float) -> None:
        """The handler asked that its type be left alone for a while."""
        self._claimer.rest(attempt.type.name, seconds)
