"""What the heartbeat's thread learns, brought to the worker's loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from holdfast.commands.change import due_hints
from holdfast.commands.reap import ReapReport, reaped_hints
from holdfast.commands.start import Delivery
from holdfast.core.records import Finish, JobRef, TypeSetting
from holdfast.notify.base import Hint
from holdfast.worker.after_commit import Records
from holdfast.worker.attempt import LOST, AbortReason, Attempt
from holdfast.worker.claimer import Claimer
from holdfast.worker.completer import Completer
from holdfast.worker.context import Workplace
from holdfast.worker.notifications import Hints
from holdfast.worker.slots import Backlog


class News:
    """Every public method is called on the heartbeat's thread; `to_loop` has the rest done on the worker's loop.

    Signals are raised at once, from here: a handler that blocks the loop can still see them.
    """

    def __init__(
        self,
        place: Workplace,
        claimer: Claimer,
        backlog: Backlog,
        completer: Completer,
        records: Records,
        hints: Hints,
        to_loop: Callable[..., None],
        asked_to_drain: Callable[[], None],
        give_back: Callable[[], None],
    ) -> None:
        self._place = place
        self._claimer = claimer
        self._backlog = backlog
        self._completer = completer
        self._records = records
        self._hints = hints
        self._to_loop: Callable[..., Any] = to_loop
        self._asked_to_drain = asked_to_drain
        self._give_back = give_back

    def lost(self, attempt: Attempt, reason: AbortReason) -> None:
        """A lease is gone, or can no longer be trusted."""
        if not attempt.abort(reason, self._place.clock.monotonic()):
            return
        if reason in LOST:
            self._place.holdings.lose(attempt)
        self._place.telling.lost(attempt, reason)
        self._to_loop(attempt.stop)

    def interrupt(self, attempt: Attempt) -> None:
        """An attempt ran out of time."""
        self._to_loop(attempt.stop)

    def timed_out(self, attempt: Attempt, finish: Finish, recorded: bool) -> None:
        """What is to be recorded of an attempt that ran out of time, unless it is recorded already."""
        if recorded:
            self._place.holdings.end([attempt])
            self._to_loop(self._records.accepted, attempt, finish)
        else:
            self._to_loop(self._completer.submit, attempt, finish)

    def strangers(self, tokens: set[str]) -> None:
        """The database says that we hold jobs of which nobody here knows."""
        self._place.holdings.unanswered(tokens)
        self._give_back()

    def released(self, jobs: Sequence[JobRef]) -> None:
        """Jobs were given back that nobody here knew of."""
        self._place.telling.given_back(jobs)
        types = sorted({each.type for each in jobs})
        self._hints.send(Hint("look", type) for type in types)
        for type in types:
            self._to_loop(self._claimer.hint, type, True)

    def reaped(self, report: ReapReport) -> None:
        """Jobs of dead workers were taken back."""
        jobs = report.page.reaped
        self._place.telling.reaped(jobs)
        self._hints.send(reaped_hints(jobs))
        self._to_loop(self._claimer.hint)
        self._to_loop(self._records.over, report.failed, report.fan_in)

    def delivered(self, delivery: Delivery) -> None:
        """Events that waited for a subscriber have become jobs."""
        self._hints.send(due_hints(delivery.types))
        for type in delivery.types:
            self._to_loop(self._claimer.hint, type)
        chains = [each.chain_id for each in delivery.end.ended]
        self._to_loop(self._records.over, chains, delivery.end.fan_in)

    def configured(self, settings: Mapping[str, TypeSetting], is_paused: bool) -> None:
        """What was set at run time."""
        self._to_loop(self._configure, settings, is_paused)

    def _configure(self, settings: Mapping[str, TypeSetting], is_paused: bool) -> None:
        for type in self._place.terms.configure(settings, is_paused):
            self._claimer.hint(type, from_the_start=True)
        self._backlog.reconsider()

    def drain(self) -> None:
        """Somebody asked this worker to drain."""
        self._to_loop(self._asked_to_drain)
